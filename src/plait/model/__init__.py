"""Frozen values: what the other rooms hand to each other. No I/O, no clocks."""
