"""A commit that crashes, fails or hears no answer at each of its storage calls in turn.

Real Parquet through the facade, on a memory store. Whatever happens, the table opens, verify
finds nothing, the next write works, and nobody was told what is not so (INV-10).
"""

from __future__ import annotations

import pytest

from plait import Table
from plait.errors import CommitOutcomeUnknownError
from plait.storage import open_store
from plait.timeline.pending import load_pending
from plait.txn.recovery import roll_back_failed
from tests.support.operations import CASES, Case, attempts, ids, rows


def look(uri: str, *, data: bool) -> frozenset[int]:
    """Open the table as a stranger does; give the ids in it."""
    table = Table.open(uri)
    report = table.check.verify(data=data)
    assert report.problems == ()
    return ids(table)


@pytest.mark.long(8)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_crash_at_any_call_leaves_all_or_nothing(case: Case) -> None:
    """INV-03 to INV-06: before and after recovery.

    A crash after a call is one before the next, but for files that are open: for these, see the
    certificate of crashes (docs/operations/crashes.md), which is compared at each run.
    """
    for uri, _ in attempts(case, "crash_before"):
        found = look(uri, data=False)
        assert found in (case.before, case.after)
        table = Table.open(uri)
        table.append(rows(1_000))
        assert ids(table) == found | {1_000}
        roll_back_failed(table._handle, reason="test", everything=True)
        table.maintenance.clean()
        assert look(uri, data=True) == found | {1_000}
        assert load_pending(open_store(uri)) == []


@pytest.mark.long(12)
@pytest.mark.parametrize("kind", ["error", "lost_reply"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_is_told_of_a_commit_is_so(case: Case, kind: str) -> None:
    """INV-10: one call fails or loses its answer, at each place in turn."""
    for uri, error in attempts(case, kind):
        found = look(uri, data=False)
        if error is None:
            assert found == case.after
        elif isinstance(error, CommitOutcomeUnknownError):
            assert found in (case.before, case.after)
        else:
            assert found == case.before
        roll_back_failed(Table.open(uri)._handle, reason="test", everything=True)
        assert look(uri, data=False) == found
