"""Streams: one two-phase group commit for every engine (RFC 0007).

Writers stage and report; a coordinator decides once an epoch; the token in the decision says how
far the application is, once for all.
"""
