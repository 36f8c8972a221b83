"""A repush comes to its end beside writers that never stop (RFC 0034)."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from plait import Table
from plait.model.changes import Changes
from plait.model.decision import SCOPE_BUCKETS, SCOPE_TABLE, Reserved, Scope
from plait.model.instant import Instant, Operation
from plait.repush.run import PAUSE_S, last_round_limit_s
from plait.txn.conflict import Judge
from plait.txn.reservation import _meets
from tests.support.protocol import Phases
from tests.support.repush_steps import again, make, rows

LANDED_MAX = 60
"""A repush that lets so many commits come in does not end."""


class Busy:
    """Writers of which one comes in whenever the repush is about to look, for ever.

    Each is a thread of its own and holds nothing back: it lands, or it comes to where it waits.
    """

    def __init__(self, table: Table, *, keyed: bool) -> None:
        self.table, self.keyed = table, keyed
        self.landed = self.waited = 0
        self._over = threading.Event()
        self._writers: list[threading.Thread] = []

    def phase(self, name: str, **facts: object) -> None:
        """Listen to the repush."""
        if name in ("repush-progress", "repush-swap"):
            self.rush()

    def rush(self) -> None:
        """Send in one more; go on when it has landed, or when it waits."""
        seen, number = threading.Event(), len(self._writers)
        assert self.landed < LANDED_MAX, "the repush has no end"

        def hold() -> None:
            self.waited += 1
            seen.set()
            assert self._over.wait(300)

        def write() -> None:
            writer = again(self.table)
            ports = replace(writer._handle.ports, observer=Phases(on={"wait": hold}))
            writer._opened.handle = replace(writer._handle, ports=ports)
            given = rows(100 + number)
            if self.keyed:
                writer.upsert(given, on_conflict="retry")
            else:
                writer.append(given)
            self.landed += 1
            seen.set()

        self._writers.append(threading.Thread(target=write, daemon=True))
        self._writers[-1].start()
        assert seen.wait(300)

    def finish(self) -> int:
        """Let those go on that wait; return how many there were in all."""
        self._over.set()
        for each in self._writers:
            each.join(300)
        return len(self._writers)


@pytest.mark.parametrize("keyed", [False, True], ids=["appends", "upserts"])
def test_a_repush_ends_while_a_commit_comes_before_each_look_at_the_head(*, keyed: bool) -> None:
    """INV-04: writers wait for its last round, and every row of theirs is there afterwards."""
    table = make() if keyed else make(record_key=(), buckets=None)
    crowd, client = Busy(table, keyed=keyed), again(table)
    client._opened.handle = replace(
        client._handle, ports=replace(client._handle.ports, observer=crowd)
    )
    layout = {"buckets": 3} if keyed else {"partition_by": "p"}
    report = client.layout.repush(**layout)  # type: ignore[arg-type]  # one of two
    assert report.version is not None
    assert crowd.waited, "nobody had to wait"
    count = crowd.finish()
    assert crowd.landed == count
    found = set(again(table).scan().to_arrow()["id"].to_pylist())
    assert found == {*range(10), *range(100, 100 + count)}
    assert not again(table).check.verify(data=True).problems


@pytest.mark.parametrize("kept", [SCOPE_TABLE, SCOPE_BUCKETS])
def test_an_append_waits_for_whoever_keeps_the_whole_table_and_for_nobody_else(kept: str) -> None:
    append = Judge(Operation.APPEND, Scope("append"), Changes())
    reserved = Reserved(Instant.at(1, "f" * 16), Scope(kept), (((), 0),))
    assert _meets(append, reserved) == (kept == SCOPE_TABLE)


def test_writers_never_wait_for_a_round_longer_than_a_part_of_their_deadline() -> None:
    assert [last_round_limit_s(rounds, 300) for rounds in range(7)] == [5, 5, 5, 10, 20, 40, 75]
    assert last_round_limit_s(10**6, 300) == 75
    assert last_round_limit_s(10**6, 1) == PAUSE_S
