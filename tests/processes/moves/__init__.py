"""Processes that bring the same keys into different partitions, killed and stopped (RFC 0030)."""
