"""Queries of a table: open, pin, describe and explain it. Nothing here changes anything."""
