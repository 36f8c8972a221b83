"""Plan scans, prune files, read slices. It decides and reads; it writes nothing."""
