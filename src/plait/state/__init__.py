"""The table at a version, columnar: checkpoints, the decisions since, what follows from both."""
