"""Any cut of a history into checkpoint parts, tail and compacted form means the same (INV-04)."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from plait.services.verify.state_replay import difference
from plait.state.checkpoint import load_checkpoint, load_newest, write_checkpoint
from plait.state.state import TableState
from plait.testing import sim_ports
from tests.support.effort import share
from tests.support.histories import History, Step, seen
from tests.support.protocol import memory

STEP_KINDS = ["add", "add", "mask", "remove", "replace", "clean", "undo", "restore", "save", "drop"]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(STEP_KINDS),
        st.integers(0, 40),
        st.integers(0, 40),
    ),
    max_size=20,
)
CUTS = st.lists(st.sampled_from(["", "", "checkpoint", "squeeze", "reload"]), max_size=16)


def same_as_the_model(history: History, state: TableState) -> None:
    for version in sorted({*range(state.horizon, state.version + 1), *history.saved.values()}):
        assert seen(state, history.store, version) == history.live[version], version
    folded = state.folded(history.store)
    condemned = folded.condemned
    entries = zip(condemned["path"].to_pylist(), condemned["removed"].to_pylist(), strict=True)
    assert dict(entries) == history.condemned


@settings(max_examples=share(60))
@given(STEPS, CUTS)
def test_checkpoints_and_compaction_change_nothing_that_can_be_seen(
    steps: list[Step], cuts: list[str]
) -> None:
    """INV-04, INV-11."""
    history = History.begin(memory())
    ports = sim_ports()
    for step, cut in zip(steps, cuts + [""] * len(steps), strict=False):
        history.step(step)
        if cut == "checkpoint":
            history.state = write_checkpoint(history.store, history.state, ports)
        elif cut == "squeeze":
            history.state = history.state.squeezed()
        elif cut == "reload":
            history.state = write_checkpoint(history.store, history.state, ports)
            loaded = load_checkpoint(history.store, history.version)
            assert loaded is not None
            history.state = loaded
    same_as_the_model(history, history.state)
    assert difference(history.store, history.state, history.replayed()) is None


@settings(max_examples=share(40))
@given(STEPS, st.integers(1, 5))
def test_a_checkpoint_is_loaded_as_it_was_written(steps: list[Step], interval: int) -> None:
    """INV-04."""
    history = History.begin(memory())
    for number, step in enumerate(steps):
        history.step(step)
        if number % interval == 0:
            history.state = write_checkpoint(history.store, history.state, sim_ports())
    written = write_checkpoint(history.store, history.state, sim_ports())
    loaded = load_newest(history.store)
    if not steps:
        return
    assert loaded is not None
    assert loaded == written
    assert difference(history.store, loaded, history.replayed()) is None
    same_as_the_model(history, loaded)


@settings(max_examples=share(20))
@given(STEPS)
def test_parts_of_checkpoints_stay_few(steps: list[Step]) -> None:
    """Each event is written O(log n) times, and a checkpoint names O(log n) parts."""
    history = History.begin(memory())
    for step in steps:
        history.step(step)
        history.state = write_checkpoint(history.store, history.state, sim_ports())
    rows = [part.rows for part in history.state.parts]
    assert all(older > 4 * newer for older, newer in itertools.pairwise(rows))
    spans = [(part.first, part.last) for part in history.state.parts]
    assert all(one[1] + 1 == two[0] for one, two in itertools.pairwise(spans))
    assert not spans or (spans[0][0] == 0 and spans[-1][1] == history.version)
