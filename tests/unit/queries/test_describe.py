"""What a table tells of itself is what was decided."""

from __future__ import annotations

from plait.queries.describe import load_timeline
from plait.storage.memory import MemoryStore
from plait.txn.recovery import roll_back_failed
from tests.support.protocol import Work, client, upsert


def test_history_tells_who_committed_under_which_id_and_whom_a_rollback_ended(
    store: MemoryStore,
) -> None:
    named = upsert(client(store), commit_id="batch-42")
    upsert(client(store))
    dead = {Work.begin(client(store)).txn.instant for _ in range(3)}
    roll_back_failed(client(store), reason="test", everything=True)
    told = [
        (entry.version, entry.action, entry.commit_id, set(entry.ended))
        for entry in load_timeline(client(store)).decided
    ]
    assert told[1:] == [
        (1, "commit", "batch-42", set()),
        (2, "commit", None, set()),
        (3, "rollback", None, dead),
    ]
    assert load_timeline(client(store)).decided[1].instant == named.instant
