"""The buffering bucketed writer: rows in, staged files and their status out."""
