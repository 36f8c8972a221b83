"""Scenes of the commit loop: one client commits, and others come between.

``python -m tests.support.commit_scenes`` prints what the client does in each of them, as
``tests/unit/txn/commit_trace.txt`` has it.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pyarrow as pa

import plait.files.deletion
import plait.files.row_map
from plait import Table
from plait.arrow.staging import ArrowStaging
from plait.errors import RetryableConflictError
from plait.model.bucket import UNKEYED, BucketId
from plait.model.changes import WriteStatus
from plait.model.contract import Contract
from plait.model.decision import SCOPE_BUCKETS, SCOPE_TABLE, CommitResult, ReadSet, Reserved, Scope
from plait.model.instant import Operation
from plait.model.plan import Snapshot
from plait.model.request import WriteRequest
from plait.testing import Fault, FaultStore
from plait.timeline import paths
from plait.txn.reservation import publish_reservation
from plait.txn.rollback import publish_rollback
from plait.txn.table_handle import TableHandle
from plait.txn.transaction import OptimisticTransaction
from tests.support import build
from tests.support.forge import forge, forge_column
from tests.support.protocol import Hand, Work
from tests.support.watched import ROWS, Act, Scene

DATED = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("value", pa.string())])
OLD, NEW = dt.datetime(2001, 1, 1, tzinfo=dt.UTC), dt.datetime(2901, 1, 1, tzinfo=dt.UTC)
rows = partial(build.rows, schema=ROWS, value="a")


# --- writes by hand: one tiny file a bucket ---------------------------------------------------


def by_hand(scene: Scene, handle: TableHandle, *buckets: int, **how: object) -> Work:
    """Begin a write of the watched client, and stage it."""

    class WatchedHand(Hand):
        def stage(
            self, snapshot: Snapshot, buckets: frozenset[BucketId] | None = None
        ) -> WriteStatus:
            numbers = "all" if buckets is None else sorted(number for _, number in buckets)
            scene.happen("stage", f"version={snapshot.version} buckets={numbers}")
            return super().stage(snapshot, buckets)

    wanted: list[BucketId] = [((), number) for number in buckets or (0,)]
    return Work.begin(handle, wanted, hand=WatchedHand, mark="watched", **how)  # type: ignore[arg-type]  # of several scenes


def write(scene: Scene, *buckets: int, mark: str = "other", **how: object) -> CommitResult:
    """Write as another client."""
    wanted: list[BucketId] = [((), number) for number in buckets or (0,)]
    return Work.begin(scene.other()._handle, wanted, mark=mark, **how).commit()  # type: ignore[arg-type]  # of several scenes


def upsert_by_hand(scene: Scene, *buckets: int, **how: object) -> Work:
    """Begin, with nothing of others so far."""
    return by_hand(scene, scene.watched(), *buckets, **how)


def plain(scene: Scene) -> None:
    """Nobody else is there."""
    scene.create()
    scene.act(upsert_by_hand(scene, 0, 1).commit)


def rows_without_a_key(scene: Scene) -> None:
    """An append loses a slot to another one."""
    scene.create(record_key=(), buckets=None)
    work = upsert_by_hand(scene, UNKEYED, operation=Operation.APPEND)
    write(scene, UNKEYED, operation=Operation.APPEND)
    scene.act(work.commit)


def lost_slots(scene: Scene) -> None:
    """Others write into other buckets, one of them while the client holds the lock."""
    scene.create()
    work = upsert_by_hand(scene)
    scene.at("phase publish", *[lambda: write(scene, 1)] * 2)
    scene.act(work.commit)


def lost_slots_without_the_lock(scene: Scene) -> None:
    """The lock cannot be had, so each loss is a round of its own."""
    scene.create()
    handle = scene.watched()
    handle.lock.held_by_another = True  # type: ignore[attr-defined]  # of WatchedLock
    work = by_hand(scene, handle)
    scene.at("phase publish", *[lambda: write(scene, 1)] * 2)
    scene.act(work.commit)


def rebased(scene: Scene) -> None:
    """Another key of the same bucket was first: that bucket is staged again."""
    scene.create()
    work = upsert_by_hand(scene, 0, 1)
    write(scene)
    scene.act(work.commit)


def rebased_twice(scene: Scene) -> None:
    """While a bucket is staged again, another key of another bucket comes in."""
    scene.create()
    work = upsert_by_hand(scene, 0, 1)
    scene.at("stage", lambda: write(scene, 1, mark="second"), lambda: write(scene, 0, mark="third"))
    write(scene)
    scene.act(work.commit)


def run_again(scene: Scene) -> None:
    """The same key was first, and the caller asked for retries."""
    scene.create(policy="file_group")
    work = upsert_by_hand(scene, 0, 1, on_conflict="retry")
    write(scene, 1, 2)
    scene.act(work.commit)


def refused(scene: Scene) -> None:
    """The same key was first, and the caller did not ask for retries."""
    scene.create()
    work = upsert_by_hand(scene)
    write(scene, mark="watched")
    scene.act(work.commit)


def refused_after_a_rebase(scene: Scene) -> None:
    """First another key is met, then the same key."""
    scene.create()
    work = upsert_by_hand(scene)
    scene.at("stage", lambda: write(scene, mark="watched"))
    write(scene)
    scene.act(work.commit)


def no_more_retries(scene: Scene) -> None:
    """Others are first more often than the table allows."""
    scene.create(properties={"commit.retries": 1, "commit.reserve.after": 9})
    work = upsert_by_hand(scene)
    scene.at("stage", lambda: write(scene))
    write(scene)
    scene.act(work.commit)


def past_the_deadline(scene: Scene) -> None:
    """Others take slot after slot until the time is over."""
    scene.create(properties={"heartbeat.timeout": "1h"})
    scene.clock.advance(1000)
    work = upsert_by_hand(scene)

    def meanwhile() -> None:
        scene.clock.advance(200)
        write(scene, 1)

    scene.at("phase publish", meanwhile, meanwhile)
    scene.act(work.commit)


def rolled_back_before(scene: Scene) -> None:
    """A recoverer ends the instant before its slot."""
    scene.create()
    work = upsert_by_hand(scene)
    roll_back(scene, work)
    scene.act(work.commit)


def rolled_back_at_the_slot(scene: Scene) -> None:
    """A recoverer takes the slot away just before the put."""
    scene.create()
    work = upsert_by_hand(scene)
    scene.at("phase publish", lambda: roll_back(scene, work))
    scene.act(work.commit)


def roll_back(scene: Scene, work: Work) -> object:
    """End the instant of the watched client as another one."""
    handle = scene.other()._handle
    return publish_rollback(handle, work.txn.instant, "a test", [()], since=work.txn.v0)


def committed_already(scene: Scene) -> None:
    """The same commit id is committed meanwhile."""
    scene.create()
    work = upsert_by_hand(scene, commit_id="batch-1")
    write(scene, 1, commit_id="batch-1")
    scene.act(work.commit)


def another_contract(scene: Scene) -> None:
    """The contract of the table changes meanwhile."""
    scene.create()
    write(scene, 1)
    work = upsert_by_hand(scene)
    table = scene.other()._handle.cache.refresh().table.to_dict()
    table["contract"] = Contract("single_writer", "none", "eager").to_dict()
    forge(scene.store, lambda d: replace(d, table=table, operation=Operation.PROPERTY), like=0)
    scene.act(work.commit)


def another_schema_by_hand(scene: Scene) -> None:
    """The columns change, and this client cannot stage under a new layout."""
    scene.create()
    work = upsert_by_hand(scene, on_conflict="retry")
    forge_column(scene.store, "more")
    scene.act(work.commit)


def unknown_outcome(scene: Scene) -> None:
    """The store never says whether the slot is ours."""
    scene.create()
    faults = [
        Fault("error", "put_if_absent", f"{paths.TIMELINE}*", times=99),
        Fault("error", "find", f"{paths.TIMELINE}*1.json", nth=4, times=99),
    ]
    work = by_hand(scene, scene.watched(lambda store: FaultStore(store, faults, clock=scene.clock)))
    scene.act(work.commit)


def manifests(scene: Scene) -> None:
    """Large sections are written once for two slots, and again after a redo."""
    scene.create(buckets=300)
    work = upsert_by_hand(scene, *range(297))
    scene.at("phase publish", lambda: write(scene, 299), lambda: write(scene, 0))
    scene.act(work.commit)


def an_older_read(scene: Scene) -> None:
    """What the rows were computed from is older than the base, and changed in between."""
    scene.create()
    write(scene, mark="watched")
    request = WriteRequest(Operation.UPSERT, read_set=ReadSet(0, (None,)))
    scene.act(lambda: commit_read(scene, request))


def an_older_read_of_another_place(scene: Scene) -> None:
    """It is older than the base, but nobody changed the same keys; then a slot is lost."""
    scene.create()
    write(scene, 1)
    request = WriteRequest(Operation.UPSERT, read_set=ReadSet(0, (None,)))
    scene.at("phase publish", lambda: write(scene, 2), lambda: write(scene))
    scene.act(lambda: commit_read(scene, request))


def an_older_read_in_a_rebase(scene: Scene) -> None:
    """After the rebase what came between the read and the new base is judged again."""
    scene.create()
    write(scene, 1)
    request = WriteRequest(Operation.UPSERT, "c", "retry", read_set=ReadSet(0))
    scene.at("phase publish", lambda: write(scene), lambda: write(scene, mark="watched"))
    scene.act(lambda: commit_read(scene, request))


def a_redo_that_reaches_further(scene: Scene) -> None:
    """The redo writes a key that it left alone before, and that another writer has changed."""
    scene.create()
    work = upsert_by_hand(scene)
    write(scene, 1, mark="watched")
    stage = work.hand.stage

    def further(snapshot: Snapshot, buckets: frozenset[BucketId] | None) -> WriteStatus:
        return stage(snapshot, (buckets or frozenset()) | {((), 1)})

    work.hand.stage = further  # type: ignore[method-assign,assignment]  # of this scene
    scene.at("phase publish", lambda: write(scene), lambda: write(scene, 1))
    scene.act(work.commit)


def a_read_that_nobody_named(scene: Scene) -> None:
    """The engine read an older version, and the same key was changed before the base."""
    scene.create()
    write(scene, mark="watched")
    scene.act(lambda: commit_read(scene, WriteRequest(Operation.UPSERT, read_set=ReadSet(0))))


def a_named_read_in_a_redo_that_reaches_further(scene: Scene) -> None:
    """As above, but the rows were computed from a read: the update would be lost."""
    scene.create()
    write(scene, 1, mark="watched")
    request = WriteRequest(Operation.UPSERT, read_set=ReadSet(0, (None,)))
    scene.at("phase publish", lambda: write(scene))
    scene.act(lambda: commit_read(scene, request, further=frozenset({((), 1)})))


def commit_read(
    scene: Scene, request: WriteRequest, further: frozenset[BucketId] = frozenset()
) -> CommitResult:
    """Commit one bucket by hand, with a request of its own; a redo may reach further."""
    handle = scene.watched()
    txn = OptimisticTransaction.begin(handle, replace(request, partitions=((),)))
    hand = Hand(handle.store, txn, [((), 0)], "watched")
    status = hand.stage(txn.base.snapshot(handle.store))

    def redo(snapshot: Snapshot, buckets: frozenset[BucketId]) -> WriteStatus:
        return hand.stage(snapshot, buckets | further)

    return txn.commit(status, Scope(SCOPE_BUCKETS), redo)


# --- reservations -----------------------------------------------------------------------------


def reserved_by_another(scene: Scene) -> None:
    """The head has a reservation of the same place: wait, then redo what its holder wrote."""
    scene.create()
    holder = Work.begin(scene.other()._handle, mark="holder")
    reserve(scene, holder)
    scene.at("phase wait", holder.commit)
    scene.act(upsert_by_hand(scene).commit)


def reserved_meanwhile(scene: Scene) -> None:
    """The reservation comes with a lost slot; its holder gives up."""
    scene.create()
    holder = Work.begin(scene.other()._handle, mark="holder")
    work = upsert_by_hand(scene)
    reserve(scene, holder)
    scene.at("phase wait", lambda: holder.txn.abort("a test"))
    scene.act(work.commit)


def refused_where_another_reserved(scene: Scene) -> None:
    """Who is refused anyway neither waits nor reserves."""
    scene.create(properties={"commit.reserve.after": 1})
    holder, work = Work.begin(scene.other()._handle, mark="holder"), upsert_by_hand(scene)
    write(scene, mark="watched")
    reserve(scene, holder)
    scene.act(work.commit)


def past_the_deadline_in_a_wait(scene: Scene) -> None:
    """The time is over when the holder is through, so nothing is staged again."""
    scene.create(properties={"heartbeat.timeout": "1h"})
    holder, work = Work.begin(scene.other()._handle, mark="holder"), upsert_by_hand(scene)
    write(scene)
    reserve(scene, holder)
    scene.at("phase wait", lambda: (scene.clock.advance(400), holder.txn.abort("a test")))
    scene.act(work.commit)


def reserved_after_several_rounds(scene: Scene) -> None:
    """Who loses too often keeps a place, and redoes what came in before it."""
    scene.create(properties={"commit.reserve.after": 2})
    work = upsert_by_hand(scene, 0, 1)
    acts = [lambda: write(scene, 1, mark="second"), lambda: write(scene, mark="third")]
    scene.at("phase publish", lambda: write(scene), *acts)
    scene.at("lock", lambda: None, lambda: write(scene, 1, mark="fourth"))
    scene.act(work.commit)


def reserved_behind_another(scene: Scene) -> None:
    """One loses, reserves at once, and waits for an older reservation."""
    scene.create(properties={"commit.reserve.after": 1})
    holder = Work.begin(scene.other()._handle, [((), 1)], mark="holder")
    reserve(scene, holder)
    scene.at("phase wait", holder.commit)
    scene.act(upsert_by_hand(scene, 0, 1).commit)


def a_reservation_that_fails(scene: Scene) -> None:
    """Nobody knows whether the place is kept; the commit goes on."""
    scene.create(properties={"commit.reserve.after": 1})
    faults = [
        Fault("error", "put_if_absent", f"{paths.TIMELINE}*2.json", times=6),
        Fault("error", "find", f"{paths.TIMELINE}*2.json", nth=3, times=6),
    ]
    work = by_hand(scene, scene.watched(lambda store: FaultStore(store, faults, clock=scene.clock)))
    write(scene)
    scene.act(work.commit)


def a_service_reserves_nothing(scene: Scene) -> None:
    """A compaction waits for a reservation, but makes none."""
    scene.create(table_type="mor", buckets=1, properties={"commit.reserve.after": 1})
    logs(scene)
    holder = scene.other().writer("upsert").__enter__()
    reserved = Reserved(holder.instant, Scope(SCOPE_TABLE))
    publish_reservation(scene.other()._handle, reserved, since=2)
    scene.at("phase wait", lambda: scene.other().maintenance.rollback(str(holder.instant)))
    table = Table(scene.watched())
    scene.act(lambda: only(table.maintenance.compact(full=True).commits))


def reserve(scene: Scene, work: Work) -> None:
    """Keep a place for another writer."""
    handle, base = scene.other()._handle, work.txn.base
    read, changes = ReadSet(base.version), work.status.changes
    judge = work.txn.checker.judge_of(changes, work.scope, base.table, read)
    publish_reservation(handle, judge.place_of(work.txn.instant), since=base.version)


def only(results: tuple[CommitResult, ...]) -> CommitResult | None:
    """Return the result of the one commit of a service, if it has one."""
    return results[0] if results else None


# --- the Arrow engine: carrying over, and staging again ---------------------------------------


def dated(*ids: int, ts: dt.datetime = NEW) -> pa.Table:
    columns = {"id": list(ids), "ts": [ts] * len(ids), "value": ["a"] * len(ids)}
    return pa.table(columns, schema=DATED)


def logs(scene: Scene) -> None:
    """Write twice, so that there is something to compact."""
    scene.other().upsert(rows(*range(20)))
    scene.other().upsert(rows(*range(5), value="b"))


def mergeable(scene: Scene, **how: object) -> Table:
    """Create a table with logs in two buckets; return the watched client."""
    scene.create(table_type="mor", **{"buckets": 2, **how})
    logs(scene)
    return Table(scene.watched())


def compact(scene: Scene) -> Act:
    return lambda: scene.other().maintenance.compact(full=True)


def upsert(scene: Scene, *ids: int) -> Act:
    return lambda: scene.other().upsert(rows(*ids, value="c"))


def a_compaction_carried_over_an_upsert(scene: Scene) -> None:
    """Others changed rows that it copied."""
    table = mergeable(scene)
    scene.at("phase publish", upsert(scene, 1), upsert(scene, 2))
    scene.act(lambda: only(table.maintenance.compact(full=True).commits))


def a_compaction_of_which_nothing_is_left(scene: Scene) -> None:
    """Another compaction was first."""
    table = mergeable(scene)
    scene.at("phase publish", compact(scene))
    scene.act(lambda: only(table.maintenance.compact(full=True).commits))


def a_writer_carried_over_a_compaction(scene: Scene) -> None:
    """It hides its rows where the compaction put them; then it loses a slot to another bucket."""
    table = mergeable(scene)
    scene.at("phase publish", compact(scene), lambda: None)
    scene.act(lambda: table.delete(where="id = 1"))


def a_writer_carried_twice(scene: Scene) -> None:
    """Another compaction comes while it is carried over the first."""
    table = mergeable(scene)
    scene.at("phase publish", compact(scene), lambda: (upsert(scene, 30)(), compact(scene)()))
    scene.act(lambda: table.upsert(rows(1, 2)))


def carried_and_rebased_at_once(scene: Scene) -> None:
    """A compaction in both buckets, and another writer in one of them."""
    table = mergeable(scene)
    acts = [compact(scene), upsert(scene, 1), compact(scene)]
    scene.at("phase publish", lambda: [act() for act in acts])
    scene.act(lambda: table.upsert(rows(*range(2, 9))))


def carried_and_then_rebased(scene: Scene) -> None:
    """First a compaction, then a writer: the redo brings along what was followed before."""
    table = mergeable(scene)
    scene.at("phase publish", compact(scene), upsert(scene, 3))
    scene.act(lambda: table.upsert(rows(*range(4, 9))))


def vectors_in_files_of_their_own(scene: Scene) -> None:
    """Carrying over writes files, and those of an earlier round are garbage."""
    with small(plait.files.deletion):
        table = mergeable(scene)
        scene.at("phase publish", compact(scene), upsert(scene, *range(3, 9)))
        scene.act(lambda: table.upsert(rows(1, 2)))


def carried_and_then_refused(scene: Scene) -> None:
    """The files that carrying over wrote go with the rollback."""
    with small(plait.files.deletion):
        table = mergeable(scene)
        scene.at("phase publish", compact(scene), upsert(scene, *range(3, 9)), upsert(scene, 1))
        scene.act(lambda: table.upsert(rows(1, 2)))


def a_lost_row_map(scene: Scene) -> None:
    """What cannot be followed is staged again, and no retry is used up."""
    with small(plait.files.row_map):
        table = mergeable(scene, properties={"commit.retries": 0})
        scene.at("phase publish", lambda: (compact(scene)(), lose_maps(scene)))
        scene.act(lambda: table.delete(where="id < 9"))


def a_lost_row_map_in_a_redo(scene: Scene) -> None:
    """A bucket is staged again, and what another followed cannot be: every such bucket is."""
    with small(plait.files.row_map):
        table = mergeable(scene)
        scene.at("phase publish", lambda: (compact(scene)(), upsert(scene, 3)(), lose_maps(scene)))
        scene.act(lambda: table.upsert(rows(*range(4, 9))))


def a_lost_row_map_of_a_compaction(scene: Scene) -> None:
    """It does nothing again: the damage is raised."""
    with small(plait.files.row_map):
        table = mergeable(scene)
        scene.at("phase publish", lambda: (upsert(scene, 1)(), lose_maps(scene)))
        scene.act(lambda: only(table.maintenance.compact(full=True).commits))


@contextlib.contextmanager
def small(module: object) -> Iterator[None]:
    """Let a module keep less inline, so that its bytes go into files."""
    kept = module.INLINE_BYTES_MAX  # type: ignore[attr-defined]  # both modules have it
    module.INLINE_BYTES_MAX = 8  # type: ignore[attr-defined]
    try:
        yield
    finally:
        module.INLINE_BYTES_MAX = kept  # type: ignore[attr-defined]


def lose_maps(scene: Scene) -> None:
    """Delete every row map."""
    scene.store.delete([i.path for i in scene.store.list("data") if i.path.endswith(".map.bin")])


def expiring(scene: Scene, table_type: str, **how: object) -> Table:
    """Create a table of which some rows have expired; return the watched client."""
    scene.create(DATED, table_type=table_type, buckets=1, **how)
    scene.other().alter.set_ttl("ts 30d")
    scene.other().upsert(dated(0, 1, 2, ts=OLD))
    scene.other().upsert(dated(3, 4, 5))
    return Table(scene.watched())


def an_expiry_drafted_anew(scene: Scene) -> None:
    """A writer was first."""
    table = expiring(scene, "mor")
    scene.at("phase publish", lambda: scene.other().upsert(dated(0, 3)))
    scene.act(lambda: only(table.maintenance.expire().commits))


def a_writer_that_meets_an_expiry(scene: Scene) -> None:
    """It hides rows, and joins what has expired."""
    table = expiring(scene, "mor")
    scene.at("phase publish", lambda: scene.other().maintenance.expire())  # noqa: PLW0108 - opens then
    scene.act(lambda: table.delete(where="id in (1, 3)"))


def copies_of_expired_rows(scene: Scene) -> None:
    """It copied rows that have expired since, so it stages them again; no retry is used up."""
    table = expiring(scene, "cow", properties={"commit.retries": 0})
    scene.at("phase publish", lambda: scene.other().maintenance.expire())  # noqa: PLW0108 - opens then
    scene.act(lambda: table.upsert(dated(3)))


def expired_rows_kept(scene: Scene) -> None:
    """Its query gives other rows now, so the expired ones stay in its files."""
    table = expiring(scene, "cow")
    scene.at("phase publish", lambda: scene.other().maintenance.expire())  # noqa: PLW0108 - opens then
    with other_rows_in_a_redo():
        scene.act(lambda: table.upsert(dated(3)))


def other_rows_after_a_conflict(scene: Scene) -> None:
    """Its query gives other rows now, and a writer was first: the error is raised."""
    table = expiring(scene, "cow")
    scene.at("phase publish", lambda: scene.other().upsert(dated(4)))
    with other_rows_in_a_redo():
        scene.act(lambda: table.upsert(dated(3)))


@contextlib.contextmanager
def other_rows_in_a_redo() -> Iterator[None]:
    """Let the engine stage once, and refuse to stage again."""
    stage = ArrowStaging.stage

    def once(self: ArrowStaging, snapshot: Snapshot, buckets: object) -> object:
        if buckets is not None:
            message = "the query gives other rows"
            raise RetryableConflictError(message)
        return stage(self, snapshot, buckets)  # type: ignore[arg-type]

    ArrowStaging.stage = once  # type: ignore[method-assign,assignment]  # for this scene
    try:
        yield
    finally:
        ArrowStaging.stage = stage  # type: ignore[method-assign]


def staged_under_another_layout(scene: Scene) -> None:
    """A repush was first; then another writer of the same bucket is."""
    scene.create(buckets=1)
    scene.other().upsert(rows(1, 2))
    table = Table(scene.watched())
    scene.at("phase publish", lambda: scene.other().layout.repush(buckets=2), upsert(scene, 1))
    scene.act(lambda: table.upsert(rows(3, 4, 5)))


def rebased_and_then_staged_under_another_layout(scene: Scene) -> None:
    """Before the repush, in the same window, there is a writer of the same bucket."""
    scene.create(buckets=1)
    scene.other().upsert(rows(1, 2))
    table = Table(scene.watched())
    acts = [upsert(scene, 7), lambda: scene.other().layout.repush(buckets=2), upsert(scene, 8)]
    scene.at("phase publish", lambda: [act() for act in acts])
    scene.act(lambda: table.upsert(rows(3, 4, 5)))


def staged_with_another_schema(scene: Scene) -> None:
    """A column is added meanwhile, and then rows of the same bucket."""
    scene.create(buckets=1)
    scene.other().upsert(rows(1, 2))
    table = Table(scene.watched())
    more = rows(7).append_column("more", pa.array([1]))
    scene.at(
        "phase publish",
        lambda: (upsert(scene, 6)(), scene.other().alter.columns().add("more", "bigint").commit()),
        lambda: scene.other().upsert(more),
    )
    scene.act(lambda: table.upsert(rows(3, 4)))


def rows_that_bring_a_column(scene: Scene) -> None:
    """Another writer brings the same column along."""
    scene.create(buckets=1)
    scene.other().upsert(rows(1, 2))
    table = Table(scene.watched())
    more = rows(3).append_column("more", pa.array([1]))
    others = rows(4).append_column("more", pa.array([2]))
    scene.at("phase publish", lambda: scene.other().upsert(others, evolve="add"))
    scene.act(lambda: table.upsert(more, evolve="add"))


def several_operations(scene: Scene) -> None:
    """A transaction of two operations is rebased as a whole."""
    scene.create(buckets=1)
    scene.other().upsert(rows(1, 2))
    table = Table(scene.watched())
    scene.at("phase publish", upsert(scene, 9))

    def block() -> None:
        with table.transaction() as tx:
            tx.upsert(rows(3))
            tx.delete(where="id = 2")

    scene.act(block)


SCENES: dict[str, Callable[[Scene], None]] = {
    made.__name__: made
    for made in (
        plain, rows_without_a_key, lost_slots, lost_slots_without_the_lock, rebased,
        rebased_twice, run_again, refused, refused_after_a_rebase, no_more_retries,
        past_the_deadline, rolled_back_before, rolled_back_at_the_slot, committed_already,
        another_contract, another_schema_by_hand, unknown_outcome, manifests, an_older_read,
        an_older_read_of_another_place, an_older_read_in_a_rebase, a_redo_that_reaches_further,
        a_read_that_nobody_named, a_named_read_in_a_redo_that_reaches_further,
        reserved_by_another, reserved_meanwhile, refused_where_another_reserved,
        past_the_deadline_in_a_wait, reserved_after_several_rounds, reserved_behind_another,
        a_reservation_that_fails, a_service_reserves_nothing, a_compaction_carried_over_an_upsert,
        a_compaction_of_which_nothing_is_left, a_writer_carried_over_a_compaction,
        a_writer_carried_twice, carried_and_rebased_at_once, carried_and_then_rebased,
        vectors_in_files_of_their_own, carried_and_then_refused, a_lost_row_map,
        a_lost_row_map_in_a_redo, a_lost_row_map_of_a_compaction, an_expiry_drafted_anew,
        a_writer_that_meets_an_expiry, copies_of_expired_rows, expired_rows_kept,
        other_rows_after_a_conflict, staged_under_another_layout,
        rebased_and_then_staged_under_another_layout, staged_with_another_schema,
        rows_that_bring_a_column, several_operations,
    )
}  # fmt: skip


def play(name: str) -> list[str]:
    """Play one scene; return its record."""
    scene = Scene()
    SCENES[name](scene)
    return scene.record()


def main() -> None:
    """Print the records of all scenes."""
    for name in SCENES:
        sys.stdout.write("\n".join([f"== {name}", *play(name), "", ""]))


if __name__ == "__main__":
    main()
