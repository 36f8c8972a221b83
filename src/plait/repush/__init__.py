"""Repush: lay a table out anew under its writers, and swap in one decision (RFC 0021)."""

from plait.repush.begin import RepushRequest, begin, cancel
from plait.repush.run import RepushReport, repush

__all__ = ["RepushReport", "RepushRequest", "begin", "cancel", "repush"]
