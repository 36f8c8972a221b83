"""Metadata of other formats beside the same data files, so that other engines read a table."""
