"""Each transition of what is staged changes what it says, and nothing else."""

from __future__ import annotations

from dataclasses import fields

import pytest

from plait.definition.policy import Verdict
from plait.model.changes import WriteStats, WriteStatus
from plait.model.decision import SCOPE_BUCKETS, SCOPE_TABLE, Decision, ReadSet, Scope
from plait.model.instant import Action, Instant, Operation
from plait.txn.commit import Restaged, StagedChanges
from plait.txn.conflict import Conflict

FIRST, SECOND = (WriteStatus(stats=WriteStats(rows_in=rows)) for rows in (1, 2))
READ = ReadSet(3, ({"column": "id"},))


def staged() -> StagedChanges:
    return StagedChanges(FIRST, FIRST, Scope(SCOPE_BUCKETS), 4, READ)


def decision(version: int, operation: Operation) -> Decision:
    return Decision(
        instant=Instant.at(version, f"{version:016x}"),
        action=Action.COMMIT,
        operation=operation,
        base=version - 1,
        version=version,
        completed_ms=version,
        attempt="",
        previous="",
    )


def conflict(version: int, operation: Operation, verdict: Verdict) -> Conflict:
    return Conflict(decision(version, operation), verdict, frozenset(), "of a test")


OTHERS = conflict(5, Operation.UPSERT, Verdict.REBASE)
COMPACTION = conflict(6, Operation.COMPACT, Verdict.CARRY)
EXPIRY = conflict(7, Operation.EXPIRE, Verdict.REBASE)
AGAIN = conflict(8, Operation.UPSERT, Verdict.RETRY)


def changed(before: StagedChanges, after: StagedChanges) -> dict[str, object]:
    """Return the fields in which two values differ, as the second has them."""
    names = [each.name for each in fields(StagedChanges)]
    differing = [n for n in names if getattr(before, n) is not getattr(after, n)]
    return {name: getattr(after, name) for name in differing}


def test_what_was_judged_is_not_fresh() -> None:
    assert staged().fresh
    before = staged()
    assert changed(before, before.judged()) == {"fresh": False}


def test_rows_that_were_read_anew_were_read_where_the_files_rest() -> None:
    """INV-07: nothing older than that is a conflict any more."""
    before = staged()
    assert changed(before, before.reread()) == {"read_set": ReadSet(4)}


def test_services_are_followed_in_their_order_and_nobody_else_is() -> None:
    """INV-14: also an expiry whose rows are staged again, in the buckets that are not."""
    before = staged()
    after = before.followed([OTHERS, COMPACTION]).followed([EXPIRY, AGAIN])
    assert changed(before, after) == {"services": (COMPACTION.theirs, EXPIRY.theirs)}
    assert before.followed([OTHERS]) is before


def test_what_was_carried_rests_on_the_head_and_keeps_what_the_engine_gave() -> None:
    """INV-14: the next carry-over begins with that again, and follows the same services."""
    before = staged().followed([COMPACTION])
    assert changed(before, before.carried(SECOND, 6)) == {"status": SECOND, "rests_on": 6}


@pytest.mark.parametrize("conflicts", [[OTHERS], [OTHERS, EXPIRY]])
def test_a_rebase_keeps_its_read(conflicts: list[Conflict]) -> None:
    """INV-06, INV-07: while the engine stages again, no status names every file."""
    before = staged().judged()
    after = before.rebased(7, conflicts)
    assert changed(before, after) == {"rests_on": 7, "fresh": True, "complete": False}
    assert (before.files, after.files) == (FIRST, None)


def test_an_operation_that_runs_again_reads_where_it_begins_again() -> None:
    """INV-07."""
    assert staged().rebased(8, [OTHERS, AGAIN]).read_set == ReadSet(8)


def test_what_was_redone_is_as_the_engine_gave_it() -> None:
    """INV-06: from then on it names every file, and still follows the services."""
    before = staged().followed([COMPACTION]).rebased(7, [OTHERS])
    after = before.redone(SECOND)
    assert changed(before, after) == {"status": SECOND, "from_engine": SECOND, "complete": True}
    assert after.files is SECOND


def test_what_cannot_follow_services_names_no_file_until_it_is_redone() -> None:
    """INV-06."""
    before = staged().followed([COMPACTION])
    after = before.unfollowed()
    assert changed(before, after) == {"services": (), "complete": False}
    assert after.redone(SECOND).files is SECOND


def test_what_was_restaged_is_of_another_layout_and_follows_nobody() -> None:
    before = staged().followed([COMPACTION]).rebased(7, [OTHERS])
    scope = Scope(SCOPE_TABLE)
    after = before.restaged(Restaged(SECOND, scope, None))
    assert (after.status, after.from_engine, after.scope) == (SECOND, SECOND, scope)
    assert (after.services, after.files, after.rests_on) == ((), SECOND, 7)
