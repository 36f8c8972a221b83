"""Repushes that are killed, beside processes that write all the time."""
