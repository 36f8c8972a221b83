"""Names for tables below one root: a catalog without a server (RFC 0047)."""
