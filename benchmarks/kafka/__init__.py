"""A topic into a table: Plait's sink beside a reader that only decodes, and beside Spark."""
