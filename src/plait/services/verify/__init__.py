"""Services that look for damage, and those that mend it."""
