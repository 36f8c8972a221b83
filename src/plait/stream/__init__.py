"""Streams: one two-phase group commit for every engine (RFC 0007).

Writers stage and report. A coordinator makes one decision per epoch. The token in the decision
records how far the application is.
"""
