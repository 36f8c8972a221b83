"""The record index: from the hash of a record key to where its row may be (RFC 0028)."""
