"""Whatever writers, failures and repairs come in which order: a sink in step is equal.

The table and its sinks are small, so that keys meet all the time.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from plait import ReplicationError, Table
from plait.errors import ConflictError, RolledBackError
from plait.replicate import Replicas, Retries, repair, status
from plait.storage import open_store
from plait.testing import sim_ports
from plait.txn.recovery import roll_back_failed
from plait.txn.table_handle import open_handle
from tests.support.build import by_id
from tests.support.memory import forget
from tests.support.sinks import fresh, held_by

IDS = st.lists(st.integers(0, 4), min_size=1, max_size=3, unique=True)
NAMES = ("one", "two")
SINKS = st.sampled_from([("one",), ("two",), NAMES])
REVS = st.integers(0, 3)
FAILS = st.one_of(st.none(), st.tuples(st.sampled_from(["put", "flush"]), st.integers(1, 4)))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), SINKS, IDS, REVS, FAILS),
        st.tuples(st.just("remove"), SINKS, IDS),
        st.tuples(st.just("meet"), SINKS, IDS, IDS, REVS),
        st.tuples(st.just("die"), SINKS, IDS, REVS),
        st.tuples(st.just("upsert"), IDS, REVS),
        st.tuples(st.just("delete"), IDS),
        st.tuples(st.just("repair"), st.sampled_from(NAMES)),
        st.tuples(st.just("restore")),
        st.tuples(st.just("compact")),
    ),
    max_size=8,
)
_numbers = itertools.count()


class World:
    """One table, two sinks, and what may happen to them."""

    def __init__(self, *, ordered: bool) -> None:
        self.uri = "memory://dual-writes"
        forget(self.uri)
        ordering = "rev" if ordered else None
        Table.create(
            self.uri, "id bigint, v bigint, rev bigint", record_key="id", ordering=ordering
        )
        self.table = Table(open_handle(open_store(self.uri), sim_ports()))
        self.sinks = {name: fresh(name) for name in NAMES}
        self.dead: list[object] = []

    def rows(self, ids: list[int], rev: int) -> pa.Table:
        values = [next(_numbers) for _ in ids]
        return pa.table({"id": ids, "v": values, "rev": [rev] * len(ids)})

    def replicas(self, names: tuple[str, ...]) -> Replicas:
        sinks = [self.sinks[name] for name in names]
        return Replicas(sinks, batch_size=1, retries=Retries(attempts=1))

    def send(self, names, ids, rev, fails) -> None:
        place = self.sinks[names[-1]].place
        place.before = None if fails is None else failing_at(*fails)
        with (
            contextlib.suppress(ReplicationError),
            self.table.writer("upsert", replicas=self.replicas(names)) as writer,
        ):
            writer.write(self.rows(ids, rev))
        place.before = None

    def remove(self, names, ids) -> None:
        with self.table.writer("delete", replicas=self.replicas(names)) as writer:
            writer.write(pa.table({"id": ids}))

    def meet(self, names, ids, others, rev) -> None:
        """Two writers at once: of those that share a key, one is refused."""
        first, second = (self.table.writer("upsert", replicas=self.replicas(names)) for _ in "12")
        with contextlib.suppress(ConflictError), first:
            first.write(self.rows(ids, rev))
            with contextlib.suppress(ConflictError), second:
                second.write(self.rows(others, rev))

    def die(self, names, ids, rev) -> None:
        writer = self.table.writer("upsert", replicas=self.replicas(names))
        writer.__enter__().write(self.rows(ids, rev))
        self.dead.append(writer)
        roll_back_failed(self.table._handle, reason="test", everything=True)

    def upsert(self, ids, rev) -> None:
        self.table.upsert(self.rows(ids, rev))

    def delete(self, ids) -> None:
        self.table.delete(keys=pa.table({"id": ids}))

    def repair(self, name) -> None:
        repair(self.table, self.sinks[name])
        assert held_by(self.sinks[name]) == by_id(self.table, "v")

    def restore(self) -> None:
        self.table.versions.restore(version=max(0, self.table.version - 1))

    def compact(self) -> None:
        self.table.maintenance.compact(full=True)

    def check(self) -> None:
        """A sink that is in step holds what the table does; one that is not told of, nothing."""
        told = {each.sink: each for each in status(self.table)}
        for name, sink in self.sinks.items():
            if name not in told:
                assert held_by(sink) == {}
            elif told[name].in_step and not told[name].pending:
                assert held_by(sink) == by_id(self.table, "v")


def failing_at(call: str, nth: int) -> Callable[[str], None]:
    count = itertools.count(1)

    def before(asked: str) -> None:
        if asked == call and next(count) == nth:
            message = "as drawn"
            raise ValueError(message)

    return before


@given(steps=STEPS, ordered=st.booleans())
def test_a_sink_that_is_in_step_holds_the_rows_of_the_table(steps, ordered) -> None:
    """D1 to D3 of RFC 0022, and that status never promises too much."""
    world = World(ordered=ordered)
    for name, *arguments in steps:
        getattr(world, name)(*arguments)
        world.check()
    for writer in world.dead:
        with contextlib.suppress(RolledBackError):
            writer.__exit__(None, None, None)
        world.check()
    for name in NAMES:
        world.repair(name)
    assert all(each.in_step for each in status(world.table))
    assert world.table.check.verify().problems == ()
