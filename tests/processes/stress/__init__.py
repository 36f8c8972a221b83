"""Stress: processes that are stopped and killed while they commit, and two detectors after it."""
