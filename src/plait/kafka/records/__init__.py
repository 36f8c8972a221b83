"""Records become rows: bytes of keys and values, in the formats that producers use."""
