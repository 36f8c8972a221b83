"""What a table is, and how that changes: its columns, layout, constraints and features."""
