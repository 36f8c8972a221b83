"""INV-12: every decision is judged under the contract, whoever publishes it.

``OPERATIONS`` lists what publishes, as data. The source is searched for callers of the publish
step, and the list must name every one of them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

import plait
from plait import Table
from plait.errors import ContractError
from plait.model.decision import Reserved
from plait.model.instant import Instant
from plait.repush import RepushRequest, begin
from plait.services.definition.drop import drop_table, in_use
from plait.spark.sink import Job
from plait.stream.transport import Hub
from plait.testing.lock_kit import until
from plait.txn.recovery import roll_back_failed
from plait.txn.reservation import publish_reservation
from plait.txn.table_decisions import change_table
from plait.txn.table_handle import TableHandle
from plait.write.request import write_request
from tests.support.build import LITTLE, again
from tests.support.dead import bury
from tests.support.streams import ready

ROWS = pa.table({"id": [1]})
SOURCE = Path(plait.__file__).parent

Prepared = Callable[[], object]
"""What a client does once it is stale."""


def case(
    name: str, act: Callable[[Table], object], *before: Callable[[Table], object]
) -> Callable[[Table], Prepared]:
    """Return what prepares a table, and then lets a client do something with it."""

    def prepare(table: Table) -> Prepared:
        for each in before:
            each(table)
        return lambda: act(table)

    prepare.__name__ = name
    return prepare


def _commit(table: Table) -> Prepared:
    writer = table.writer("upsert")
    writer.__enter__()
    writer.write(ROWS)
    return lambda: writer.__exit__(None, None, None)


def _block(table: Table) -> Prepared:
    block = table.transaction()
    block.__enter__()
    block.upsert(ROWS)
    return lambda: block.__exit__(None, None, None)


def _stream(table: Table) -> Prepared:
    writer = table.stream("loader").writer("upsert", after=None, end="1")
    writer.__enter__()
    writer.write(ROWS)
    return lambda: writer.__exit__(None, None, None)


def _coordinated(table: Table) -> Prepared:
    stream, hub = table.stream("several"), Hub()
    coordinator = stream.coordinator(hub.coordinator(), "upsert")
    participant = stream.participant(hub.writer(), "one")
    coordinator.start()
    ready(coordinator, participant, ROWS)

    def complete() -> None:
        try:
            coordinator.complete()
        finally:
            coordinator.close()
            participant.close()

    return complete


def _take_over(table: Table) -> Prepared:
    """Begin a coordinator beside one that is older."""
    older = again(table).stream("several")
    older.coordinator(Hub().coordinator(), "upsert").start()
    return table.stream("several").coordinator(Hub().coordinator(), "upsert").start


def _reservation(table: Table) -> Prepared:
    handle = table._handle
    holder = handle.new_instant(handle.cache.refresh())
    reserved = Reserved(holder)
    return lambda: publish_reservation(handle, reserved, since=handle.cache.known().version)


def _dead(table: Table) -> str:
    """Leave the records of a writer that is pending."""
    writer = table.writer("upsert")
    writer.__enter__()
    return str(writer.instant)


def _rollback_failed(table: Table) -> Prepared:
    _dead(table)
    return lambda: roll_back_failed(table._handle, reason="dead", everything=True)


def _clean(table: Table) -> Prepared:
    table.alter.set(LITTLE)
    table.upsert(ROWS)
    table.upsert(ROWS)
    assert table.maintenance.clean(dry_run=True).condemned
    return table.maintenance.clean


def _archive(table: Table) -> Prepared:
    table.alter.set({"archive.keep": 1, "checkpoint.interval": 1})
    for _ in range(4):
        table.upsert(ROWS)
    assert table.maintenance.archive(dry_run=True).decisions
    return table.maintenance.archive


def _undo_clean(table: Table) -> Prepared:
    table.alter.set({"clean.retain.time": "0s", "clean.retain.versions": 1})
    table.upsert(ROWS)
    table.upsert(ROWS)
    # Commits of one millisecond complete after each other, a little ahead of the clock.
    assert until(lambda: table.maintenance.clean().version is not None, wait_s=30)
    return table.maintenance.undo_clean


def _rebuild(table: Table) -> Prepared:
    table.alter.set({"metadata.statistics": "off"})
    table.upsert(ROWS)
    table.alter.set({"metadata.statistics": "on"})
    return table.maintenance.rebuild_metadata


def _remove_foreign(table: Table) -> Prepared:
    table._handle.store.put(f"data/00000-20260101000000000-{'e' * 16}-0.base.parquet", b"?")
    return lambda: table.check.remove_foreign(table.check.foreign())


def _accept_loss(table: Table) -> Prepared:
    table.upsert(ROWS)
    path = table.inspect.files()["path"][0].as_py()
    table._handle.store.delete([path])
    plan = table.check.repair(accept_loss=[f"file:{path}"], dry_run=True)
    return lambda: table.check.repair(plan)


def _alter(table: Table) -> Prepared:
    return table.alter.columns().add("note", "string").commit


def _beside_the_dead(table: Table) -> None:
    """Make the table one for a single writer, and leave what a dead one left."""
    table.alter.contract(concurrency="single_writer")
    bury(table._handle.store, _dead(table))


def _begin_job(table: Table) -> Prepared:
    _beside_the_dead(table)
    order = write_request("append", table._handle.cache.known().table.spec)
    job = Job.prepare(table, order, StructType([StructField("id", LongType())]))
    return lambda: job.commit([])


def _set_savepoint(table: Table) -> None:
    table.versions.savepoint("kept")


def _set_replica(table: Table) -> None:
    table.replicas.add("eu=memory://contract-eu")


def _do_repush(table: Table) -> None:
    table.layout.repush(buckets=3)


def _rollback(table: Table) -> Prepared:
    instant = _dead(table)
    return lambda: table.maintenance.rollback(instant)


GIVES_UP = (_commit, _block, _stream, _coordinated, _take_over)
"""Their own rollback is the one decision that clients may publish whose contract is over."""


def _begin_repush(table: Table) -> None:
    begin(table._handle, RepushRequest(buckets=3))


def _start_turn(table: Table) -> None:
    table.stream("several").coordinator(Hub().coordinator(), "upsert").start()


def _upsert(table: Table) -> None:
    table.upsert(ROWS, commit_id="undone")


OPERATIONS: dict[str, tuple[Callable[[Table], Prepared], ...]] = {
    "txn.commit.Publisher.publish": GIVES_UP,
    "txn.transaction.OptimisticTransaction.abort": GIVES_UP,
    "txn.reservation.ReservationQueue._reserve": (_reservation,),
    "services.maintenance.clean.clean": (
        _clean,
        case("clean_of_nothing", lambda t: t.maintenance.clean()),
    ),
    "services.maintenance.clean.undo_clean": (_undo_clean,),
    "services.verify.rebuild.rebuild": (_rebuild,),
    "services.maintenance.archive._Mover._publish": (_archive,),
    "services.verify.foreign._end_unknown": (_remove_foreign,),
    "services.table_maintenance.Maintenance.rollback": (_rollback, _rollback_failed),
    "txn.transaction.OptimisticTransaction._finish": GIVES_UP,
    "services.maintenance.runner._optimized": (
        case("optimize", lambda t: t.maintenance.optimize(), _clean),
    ),
    "services.definition.contract.change_contract": (
        case("change_contract", lambda t: t.alter.contract(lock="process")),
    ),
    "services.definition.drop.drop_table": (case("drop", lambda t: drop_table(t._handle)),),
    "services.definition.drop.undrop_table": (),  # its caller opened the table for it
    "services.definition.drop.in_use": (
        case("in_use", lambda t: in_use(t._handle), _beside_the_dead),
    ),
    "services.maintenance.savepoint.set_savepoint": (case("savepoint", _set_savepoint),),
    "services.maintenance.savepoint.drop_savepoint": (
        case("drop_savepoint", lambda t: t.versions.drop_savepoint("kept"), _set_savepoint),
    ),
    "services.verify.loss.accept_loss": (_accept_loss,),
    "services.maintenance.restore.restore": (
        case("restore", lambda t: t.versions.undo(), _upsert),
    ),
    "services.maintenance.replay.replay": (
        case("replay", lambda t: t.versions.replay(), _upsert, lambda t: t.versions.undo()),
    ),
    "services.definition.alter.Alter.set": (
        case("set", lambda t: t.alter.set({"commit.retries": 3})),
    ),
    "services.definition.alter.Alter.set_ttl": (case("set_ttl", lambda t: t.alter.set_ttl(None)),),
    "services.definition.alter.alter": (_alter,),
    "services.definition.sinks.add_replica": (case("add_replica", _set_replica),),
    "services.definition.sinks.remove_replica": (
        case("remove_replica", lambda t: t.replicas.remove("eu"), _set_replica),
    ),
    "repush.begin.begin": (case("repush", _do_repush),),
    "repush.begin.cancel": (case("cancel_repush", lambda t: t.layout.cancel(), _begin_repush),),
    "repush.swap.Swap.publish": (case("go_on_with_a_repush", _do_repush, _begin_repush),),
    "repush.swap.reserved": (),  # manners only: without it the swap is published all the same
    "repush.undo.undo": (case("undo_repush", lambda t: t.layout.undo(), _do_repush),),
    "services.index.record_index._declare": (case("create_index", lambda t: t.index.create()),),
    "services.index.record_index._drop": (
        case("drop_index", lambda t: t.index.drop(), lambda t: t.index.create()),
    ),
    "services.definition.upgrade.change_features": (
        case("downgrade", lambda t: t.alter.downgrade(to=[])),
    ),
    "txn.transaction.OptimisticTransaction.begin": (case("begin", _upsert, _beside_the_dead),),
    "stream.open_turn.OpenTurn.begin": (case("begin_turn", _start_turn, _beside_the_dead),),
    "stream.open_turn.OpenTurn.roll_back": (_coordinated,),
    "stream.coordinator.Fence.end_older": (_take_over,),
    "spark.sink.Job.abort": (),  # it opens the table anew, and ends what it began itself
    "spark.sink.Job._request": (_begin_job,),
}
"""Whoever publishes -> ways to make a stale client do so."""
CASES = tuple(dict.fromkeys(case for cases in OPERATIONS.values() for case in cases))


def _change_unseen(handle: TableHandle) -> None:
    """Change the contract as if the change had overlooked every living writer."""
    change_table(handle, lambda t: replace(t, contract=replace(t.contract, lock="none")))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.strip("_"))
def test_nothing_is_published_by_a_client_of_an_older_contract(
    case: Callable[[Table], Prepared], tmp_path: Path
) -> None:
    """INV-12: refused, and neither decided nor deleted; giving up its own instant is all."""
    uri = str(tmp_path / "t")
    Table.create(uri, "id bigint", record_key=["id"], buckets=1)
    stale = Table.open(uri)
    act = case(stale)
    newcomer = Table.open(uri)
    _change_unseen(newcomer._handle)
    before, files = newcomer.version, _data_files(tmp_path)
    others = _of_others(newcomer, case)
    with pytest.raises(ContractError):
        act()
    decided = [entry for entry in newcomer.inspect.history() if entry.version > before]
    if case in GIVES_UP:
        assert decided
        assert {entry.operation for entry in decided} == {"rollback"}
        assert not {each for entry in decided for each in entry.ended} & others
    else:
        assert decided == []
        assert _data_files(tmp_path) == files


def _of_others(table: Table, case: Callable[[Table], Prepared]) -> set[Instant]:
    """Begin a write of somebody else; return it, and the turns of another coordinator."""
    if case not in GIVES_UP:
        return set()
    begun = (
        {entry.instant for entry in table.inspect.timeline().pending}
        if case is _take_over
        else set()
    )
    writer = again(table).writer("upsert")
    writer.__enter__()
    return {*begun, writer.instant}


@pytest.mark.slow
def test_every_operation_that_publishes_is_listed_here() -> None:
    """A service that is added must be shown to obey the contract."""
    assert _publishers() == set(OPERATIONS)


def _data_files(place: Path) -> set[Path]:
    return set(place.rglob("*.parquet"))


def _publishers() -> set[str]:
    """Find who calls the publish step, or a function of ``txn`` that does."""
    calls = dict(_calls())
    steps = {"publish"}
    while True:
        found = {name for name, called in calls.items() if called & steps}
        inner = {name for name in found if _is_step(name)}
        wider = steps | {name.rsplit(".", 1)[-1] for name in inner}
        if wider == steps:
            return found - inner
        steps = wider


def _is_step(name: str) -> bool:
    """Whether this is a plain function of ``txn``: what counts is who calls it."""
    return name.startswith("txn.") and name.count(".") == 2


def _calls() -> Iterator[tuple[str, set[str]]]:
    """Give each function and method of the source with the names that it calls."""
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        if module.startswith(("storage.", "testing.")):
            continue  # a disk publishes files, and kits are no clients
        yield from _in(ast.parse(path.read_text(encoding="utf-8")), module)


def _in(node: ast.AST, place: str) -> Iterator[tuple[str, set[str]]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _in(child, f"{place}.{child.name}")
        elif isinstance(child, ast.FunctionDef):
            called = (each.func for each in ast.walk(child) if isinstance(each, ast.Call))
            yield f"{place}.{child.name}", {f.id for f in called if isinstance(f, ast.Name)}
