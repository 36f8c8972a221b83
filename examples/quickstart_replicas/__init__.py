"""The dual-write quickstart: flights in two regions, one dies, comes back and is repaired."""
