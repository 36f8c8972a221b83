"""Services that leave out one rule each: what histories with services and restores must find."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from plait.definition.policy import Verdict
from plait.model.changes import MASKED
from plait.model.instant import Operation
from plait.services.maintenance import archive, replay, restore
from plait.timeline import paths
from plait.txn import refusal, tokens
from plait.txn.conflict import Judge
from plait.txn.matrix import Cell, Meets
from tests.differential.broken import Broken

_HARMLESS = Cell(Meets.NEVER, Verdict.COMPATIBLE, Verdict.COMPATIBLE)


def _forgets_masks(real: Any) -> Any:
    def changes(*args: Any) -> Any:
        return replace(real(*args), masked=MASKED.empty_table())

    return changes


def _contains_all(real: Any) -> Any:
    """Take what was undone for what is there."""
    found = real.__name__ == "contains" or None
    return lambda *_: found


def _empties_one_more(real: Any) -> Any:
    """Empty a slot too many: that decision is nowhere any more."""

    def empty_slots(handle: Any) -> Any:
        count = real(handle)
        handle.store.put(paths.slot(handle.cache.known().archive.last + 1), b"")
        return count

    return empty_slots


def _names_no_ids(real: Any) -> Any:
    return lambda applications, _ids: real(applications, ())


def _looks_for_nothing(_: Any) -> Any:
    return lambda *_args: None


def _overlooks_restores(real: Any) -> Any:
    def cell(self: Any, theirs: Any) -> Any:
        return _HARMLESS if theirs.operation is Operation.RESTORE else real(self, theirs)

    return cell


BROKEN = (
    Broken(
        "a restore forgets which rows were hidden",
        ((restore, "changes_between"),),
        _forgets_masks,
        3,
        frozenset({"restore"}),
    ),
    Broken(
        "a restore undoes what its plan did not show",
        ((restore, "_require_shown"),),
        _looks_for_nothing,
        3,
        frozenset({"restore shown"}),
    ),
    Broken(
        "a writer that meets a restore goes on",
        ((Judge, "_cell"),),
        _overlooks_restores,
        39,
        frozenset({"writers meet a restore"}),
    ),
    Broken(
        "a commit id that was undone is reported as applied",
        ((refusal, "contains"),),
        _contains_all,
        19,
        frozenset({"INV-16"}),
    ),
    Broken(
        "an epoch that was undone is reported as applied",
        ((tokens, "contains"), (tokens, "find_undone_position"), (tokens, "require_contained")),
        _contains_all,
        33,
        frozenset({"INV-16"}),
    ),
    Broken(
        "a replay does not record the commit ids",
        ((replay, "Replayed"),),
        _names_no_ids,
        1,
        frozenset({"replay"}),
    ),
    Broken(
        "an archive loses a decision",
        ((archive, "empty_slots"),),
        _empties_one_more,
        5,
        frozenset({"damage"}),
    ),
)
