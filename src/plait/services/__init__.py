"""Table services: each plans, then executes its plan."""
