"""Of a large table only the files asked for are loaded, and they are the same files (INV-04)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

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
from tests.support.effort import share
from tests.support.forge import reseal_checkpoint
from tests.support.histories import History, Step
from tests.support.protocol import client, listed, memory

PLACES: list[Partition] = [("a",), ("a-b",), ("b",), (None,)]
CUTS = st.lists(st.sampled_from(["", "checkpoint"]), max_size=16)
CHOSEN = st.sets(st.sampled_from([*PLACES, ("nowhere",)]))


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
@given(STEPS, CUTS, CHOSEN, st.integers(0, 60))
def test_a_scan_by_bounds_chooses_the_same_files_from_typed_bounds(
    steps: list[Step], cuts: list[str], chosen: set[Partition], least: int
) -> None:
    """INV-04: bounds in parts are those of the decisions, and are asked in chosen partitions."""
    where = f"id >= {least} AND id < {least + 5}"

    def wants(spec: TableSpec) -> FileCriteria:
        return replace(
            filter_where(where)(spec), partitions=filter_partitions(chosen)(spec).partitions
        )

    with everything_is_large():
        history = made(steps, cuts)
        state = opened(history.store)
        every, some = (
            state.snapshot(history.store, file_filter=each) for each in (filter_where(where), wants)
        )
    plan, expected = (
        plan_scan(each, where=where) for each in (every, history.replayed().snapshot(history.store))
    )
    assert plan.files["path"].to_pylist() == expected.files["path"].to_pylist()
    assert plan.to_dict() == expected.to_dict()
    whole = shown(replace(every, files=expected.files))
    found = shown(replace(some, files=plan_scan(some, where=where).files))
    assert found == (whole if some.total is None else within(whole, chosen))


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
