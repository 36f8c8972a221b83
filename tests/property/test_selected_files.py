"""Of a large table only the files asked for are loaded, and they are the same files (INV-04)."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plait import Insert, Table
from plait.files.bounds import Kinds, with_bounds
from plait.model.bucket import Partition, partition_path
from plait.model.plan import Snapshot, TableSpec
from plait.read.plan import FileCriteria, all_files, filter_partitions, filter_where, plan_scan
from plait.services.verify.checks import verify
from plait.state import checkpoint, part_file, selected
from plait.state.cache import StateCache
from plait.state.checkpoint import write_checkpoint
from plait.state.state import TableState
from plait.storage.port import Store
from plait.testing import sim_ports
from plait.timeline import paths
from tests.property.test_state_fold import STEPS
from tests.property.test_table_machine import TableMachine
from tests.support.effort import share
from tests.support.forge import reseal_checkpoint
from tests.support.histories import History, Step
from tests.support.protocol import client, listed, memory

PLACES: list[Partition] = [("a",), ("a-b",), ("b",), (None,)]
CUTS = st.lists(st.sampled_from(["", "checkpoint"]), max_size=16)
CHOSEN = st.sets(st.sampled_from([*PLACES, ("nowhere",)]))


_NAMES = itertools.count()
SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.int64())])
OPERATIONS = ["upsert", "upsert", "insert", "delete", "everywhere", "where", "update", "dynamic"]
WORK = st.lists(
    st.tuples(
        st.sampled_from(OPERATIONS),
        st.sets(st.tuples(st.integers(0, 9), st.sampled_from("xyz")), min_size=1, max_size=4),
    ),
    min_size=3,
    max_size=8,
)
Content = dict[tuple[int, str], int]


@contextlib.contextmanager
def everything_is_large() -> Iterator[None]:
    """Read parts in pieces, however small they are."""
    with (
        mock.patch.object(selected, "WHOLE_ROWS_MAX", 0),
        mock.patch.object(part_file, "WHOLE_BYTES_MAX", 0),
        mock.patch.object(part_file, "GROUP_ROWS", 2),
    ):
        yield


def made(steps: list[Step], cuts: list[str]) -> History:
    history = History.begin(memory(), places=PLACES)
    for step, cut in zip(steps, cuts + [""] * len(steps), strict=False):
        history.step(step)
        if cut:
            history.state = write_checkpoint(history.store, history.state, sim_ports())
    return history


def opened(store: Store) -> TableState:
    return StateCache(store, sim_ports()).refresh()


def shown(snapshot: Snapshot) -> dict[str, int]:
    files = snapshot.files
    return dict(zip(files["path"].to_pylist(), files["masked"].to_pylist(), strict=True))


def within(live: dict[str, int], chosen: set[Partition]) -> dict[str, int]:
    folders = {partition_path(place) for place in chosen}
    return {path: masked for path, masked in live.items() if path.rpartition("/")[0] in folders}


@settings(max_examples=share(60))
@given(STEPS, CUTS, CHOSEN)
@example([("add", 0, 0)] * 3, ["checkpoint"], {("a",)})
def test_files_of_chosen_partitions_are_those_of_the_model(
    steps: list[Step], cuts: list[str], chosen: set[Partition]
) -> None:
    """INV-04: at every readable version, whatever is in parts and what in decisions."""
    with everything_is_large():
        history = made(steps, cuts)
        state = opened(history.store)
        for version in range(state.horizon, state.version + 1):
            known = state.snapshot(
                history.store, version=version, file_filter=filter_partitions(chosen)
            )
            live, found = history.live[version], shown(known)
            if known.total is None:  # there is no large part yet
                assert found == live
            else:
                assert found == within(live, chosen)
                assert known.total == len(live)
            whole = state.snapshot(history.store, version=version, file_filter=all_files)
            assert shown(whole) == live
        assert not state.verification.wrong


@settings(max_examples=share(60))
@given(STEPS, CUTS, st.integers(0, 60))
def test_a_scan_by_bounds_chooses_the_same_files_from_typed_bounds(
    steps: list[Step], cuts: list[str], least: int
) -> None:
    """INV-04: bounds in parts are those of the decisions."""
    where = f"id >= {least} AND id < {least + 5}"
    with everything_is_large():
        history = made(steps, cuts)
        state = opened(history.store)
        some = state.snapshot(history.store, file_filter=filter_where(where))
    whole = history.replayed().snapshot(history.store)
    plan, expected = plan_scan(some, where=where), plan_scan(whole, where=where)
    assert plan.files["path"].to_pylist() == expected.files["path"].to_pylist()
    assert plan.to_dict() == expected.to_dict()


@settings(max_examples=share(40))
@given(STEPS, CUTS, CHOSEN, st.integers(0, 60))
def test_bounds_are_asked_in_chosen_partitions_alone(
    steps: list[Step], cuts: list[str], chosen: set[Partition], least: int
) -> None:
    """INV-04."""
    where = f"id >= {least} AND id < {least + 5}"

    def wants(spec: TableSpec) -> FileCriteria:
        return replace(
            filter_where(where)(spec), partitions=filter_partitions(chosen)(spec).partitions
        )

    with everything_is_large():
        history = made(steps, cuts)
        some = opened(history.store).snapshot(history.store, file_filter=wants)
    whole = plan_scan(history.replayed().snapshot(history.store), where=where).files
    expected = dict(zip(whole["path"].to_pylist(), whole["masked"].to_pylist(), strict=True))
    found = shown(replace(some, files=plan_scan(some, where=where).files))
    assert found == (expected if some.total is None else within(expected, chosen))


@pytest.mark.long(2)
@pytest.mark.parametrize("damage", ["missing", "rubbish", "cut", "flipped"])
@pytest.mark.parametrize("chosen", [{("a",)}, set(PLACES)])
def test_damaged_parts_are_made_up_for_by_the_decisions(
    damage: str, chosen: set[Partition]
) -> None:
    """INV-11: also where only pieces of a part are read."""
    with everything_is_large():
        history = made([("add", 2, 1), ("mask", 0, 1)] * 6, [*[""] * 10, "checkpoint"])
        for path in listed(history.store, paths.CHECKPOINTS):
            body = history.store.find(path) or b""
            if path.endswith("state.json"):
                continue
            for at in range(0, len(body), 397) if damage == "flipped" else [0]:
                harm(history.store, path, body, damage, at)
                state = opened(history.store)
                known = state.snapshot(history.store, file_filter=filter_partitions(chosen))
                assert shown(known) == within(history.live[-1], chosen), (path, at)
            history.store.put(path, body)


def harm(store: Store, path: str, body: bytes, damage: str, at: int) -> None:
    if damage == "missing":
        store.delete([path])
    elif damage == "rubbish":
        store.put(path, b"rubbish")
    elif damage == "cut":
        store.put(path, body[: len(body) // 2])
    else:
        store.put(path, body[:at] + bytes([body[at] ^ 4]) + body[at + 1 :])


def test_places_that_are_not_those_of_the_files_are_not_believed() -> None:
    """INV-11: a file whose directory was forgotten would be overlooked; verify says so."""

    def forgetful(added: pa.Table) -> pa.Table:
        return part_file.places_of(added)[1:]

    with everything_is_large():
        with mock.patch.object(checkpoint, "places_of", forgetful):
            history = made([("add", 2, 1)] * 6, [*[""] * 5, "checkpoint"])
        state = opened(history.store)
        for place in PLACES:
            known = state.snapshot(history.store, file_filter=filter_partitions([place]))
            assert shown(known) == within(history.live[-1], {place})
        told = problems_of(history.store)
    assert ["its directories" in each for each in told] == [True]


def test_typed_bounds_that_are_not_those_of_the_decisions_are_found() -> None:
    """INV-04: verify compares them with the JSON beside them."""

    def shifted(files: pa.Table, kinds: Kinds) -> pa.Table:
        there = with_bounds(files, kinds)
        at = there.schema.get_field_index("lower.1")
        return there.set_column(at, there.schema.field(at), pc.add(there["lower.1"], 1))

    with mock.patch.object(checkpoint, "with_bounds", shifted):
        history = made([("add", 2, 1)] * 6, [*[""] * 5, "checkpoint"])
    assert ["lower.1" in each for each in problems_of(history.store)] == [True]


def problems_of(store: Store) -> list[str]:
    """Give what is wrong with checkpoints; these tables have no data files."""
    found = verify(client(store), data=False).problems
    return [each.message for each in found if each.path.startswith(paths.CHECKPOINTS)]


@pytest.mark.parametrize(("place", "lie"), [(2, 7), (3, 7), (4, 7)], ids=["rows", "size", "footer"])
def test_a_part_that_is_not_what_its_reference_says_is_not_believed(place: int, lie: int) -> None:
    """INV-11: a lying checkpoint costs time only."""
    with everything_is_large():
        history = made([("add", 2, 1)] * 6, [*[""] * 5, "checkpoint"])
        path = paths.checkpoint(6)
        parts = json.loads(json.loads(history.store.find(path) or b"")["state"])["parts"]
        for entry in parts[0]["files"]:
            if entry[0] == "added":
                entry[place] += lie
        reseal_checkpoint(history.store, 6, parts=parts)
        state = opened(history.store)
        assert state.checkpoint == 6
        with mock.patch.object(selected, "recover_part", wraps=selected.recover_part) as asked:
            known = state.snapshot(history.store, file_filter=filter_partitions([("a",)]))
        assert shown(known) == within(history.live[-1], {("a",)})
        assert asked.called


def test_a_part_that_is_not_sorted_is_not_believed() -> None:
    """INV-11: a lying checkpoint costs time only."""
    with everything_is_large():
        with mock.patch.object(part_file, "_ORDER", ("version", "partition")):
            history = made([("add", 2, 1)] * 6, [*[""] * 5, "checkpoint"])
        state = opened(history.store)
        assert state.checkpoint == 6
        for place in PLACES:
            known = state.snapshot(history.store, file_filter=filter_partitions([place]))
            assert shown(known) == within(history.live[-1], {place})


@settings(max_examples=share(15))
@given(st.sampled_from(["cow", "mor"]), WORK)
def test_writers_that_load_only_their_partitions_write_what_a_dict_would(
    table_type: str, work: list[tuple[str, set[tuple[int, str]]]]
) -> None:
    """INV-08: each step by a client that knows nothing."""
    uri = f"memory://selected-{next(_NAMES)}"
    now: Content = {}
    with everything_is_large():
        Table.create(
            uri,
            SCHEMA,
            record_key=["id"],
            partition_by=["p"],
            buckets=2,
            table_type=table_type,
            properties={"checkpoint.interval": "1"},
        )
        for value, (operation, keys) in enumerate(work):
            now = done(Table.open(uri), operation, sorted(keys), value, now)
        table = Table.open(uri)
        for place in "xyz":
            found = table.scan(where=f"p = '{place}'").to_arrow()
            assert content(found) == {k: v for k, v in now.items() if k[1] == place}
        assert content(table.scan().to_arrow()) == now
        assert not table.check.verify().problems


def done(
    table: Table, operation: str, keys: list[tuple[int, str]], value: int, now: Content
) -> Content:
    """Do one step; give what the table must hold then."""
    ids, places = zip(*keys, strict=True)
    rows = pa.table({"id": ids, "p": places, "v": [value] * len(keys)}, schema=SCHEMA)
    fresh = dict.fromkeys(keys, value)
    low, place = keys[0]
    if operation == "upsert":
        table.upsert(rows)
        return {**now, **fresh}
    if operation == "insert":
        table.merge(rows, not_matched=[Insert()])
        return {**fresh, **now}
    if operation == "delete":
        table.delete(keys=rows.select(["id", "p"]))
        return {key: v for key, v in now.items() if key not in fresh}
    if operation == "everywhere":
        table.delete(keys=rows.select(["id"]))
        return {key: v for key, v in now.items() if key[0] not in ids}
    if operation == "where":
        table.delete(where=f"p = '{place}' AND id >= {low}")
        return {key: v for key, v in now.items() if key[1] != place or key[0] < low}
    if operation == "update":
        table.update({"v": "v + 1"}, where=f"p = '{place}'")
        return {key: v + (key[1] == place) for key, v in now.items()}
    table.overwrite(rows, partitions="dynamic")
    return {**{key: v for key, v in now.items() if key[1] not in places}, **fresh}


def content(rows: pa.Table) -> Content:
    keys = list(zip(rows["id"].to_pylist(), rows["p"].to_pylist(), strict=True))
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, rows["v"].to_pylist(), strict=True))


class LargeTableMachine(TableMachine):
    """The machine of a small table, with every part read in pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.patched = contextlib.ExitStack()
        self.patched.enter_context(everything_is_large())

    def teardown(self) -> None:
        with self.patched:
            super().teardown()


TestLargeTableMachine = LargeTableMachine.TestCase
TestLargeTableMachine.settings = settings(
    stateful_step_count=12, max_examples=share(15), deadline=None
)
del TableMachine  # it is run where it is made
