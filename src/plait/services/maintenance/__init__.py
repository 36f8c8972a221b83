"""Services that keep a table fast and small, and those that take it back."""
