"""The request: what a caller asks of a writer, from the call to the decision."""
