"""Frozen values that the other packages pass to each other. No I/O, no clocks."""
