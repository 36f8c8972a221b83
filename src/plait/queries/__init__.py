"""Queries of a table: describe, explain, and open it. Nothing here changes anything."""
