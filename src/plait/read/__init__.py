"""Read a snapshot that is given: plan scans, prune files, read slices and changes."""
