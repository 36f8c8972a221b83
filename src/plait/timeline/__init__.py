"""Instants and decisions on storage: names, bytes, reading. Publishing is in ``txn``."""
