"""What a table tells of itself is what was decided."""

from __future__ import annotations

from plait.queries.describe import load_timeline
from plait.services.rollback import roll_back
from plait.storage.memory import MemoryStore
from tests.support.protocol import Work, client, upsert


def test_history_tells_who_committed_under_which_id_and_whom_a_rollback_ended(
    store: MemoryStore,
) -> None:
    named = upsert(client(store), commit_id="batch-42")
    upsert(client(store))
    dead = Work.begin(client(store)).txn.instant
    roll_back(client(store), dead, reason="test")
    told = [
        (entry.version, entry.action, entry.commit_id, entry.ended)
        for entry in load_timeline(client(store)).decided
    ]
    assert told[1:] == [
        (1, "commit", "batch-42", None),
        (2, "commit", None, None),
        (3, "rollback", None, str(dead)),
    ]
    assert load_timeline(client(store)).decided[1].instant == named.instant
