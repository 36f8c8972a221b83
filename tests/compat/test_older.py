"""An older Plait reads what it knows, and refuses the rest by name (RFC 0029).

The older code comes from this repository's own history, and runs with the libraries of now.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from functools import partial
from pathlib import Path

import pytest

from plait import FeatureError, Table, UnsupportedFeatureError
from plait.definition.features import FEATURES, KNOWN
from tests.compat.reader import Reader
from tests.conftest import missing
from tests.support import build

pytestmark = pytest.mark.processes

BEFORE_REPUSH = "fc362650d259edf47bdee12b3452a94809228c66"
"""The last commit before the first feature that changes how a table is laid out: it knows neither
``repush-1`` nor what came after it, and no features of writers."""
ROOT = Path(__file__).parents[2]
V1 = Path(__file__).parent / "v1"
TABLES = sorted(path.stem for path in V1.glob("*.json"))
REFUSED = {
    "altered": ["defaults-1"],
    "fields": ["partition-fields-1"],
    "hashed": ["bucket-by-1"],
    "repushed": ["repush-1"],
    "replicated": ["writer-features-1"],
    "upgraded": ["writer-features-1"],
    "written": ["writer-features-1"],
}
"""What must be refused, and for what; see also ``combined``, which needs most of these."""


PRE_RELEASES = {
    "33c13effba3512c674cd8ea86f0965bf2d284de5": "outcome",
    "bd2d8f2a9d0e2ec8ffd54bcea15b8baf0832d890": "outcome",
    "809114b650e95ce19c3ba108a8e796212f42f126": "changes.added.sorted",
}
"""Commits from before the format was fixed, and what their decisions have and ours lack."""
MAKE = """
import sys, pyarrow as pa
from plait import Table
schema = pa.schema([("id", pa.int64()), ("p", pa.int64())])
for place, count in (("inline", 2), ("manifests", 300)):
    ids = pa.array(range(count), pa.int64())
    uri = sys.argv[1] + "/" + place
    table = Table.create(uri, schema, record_key=["id", "p"], partition_by=["p"])
    table.upsert(pa.table([ids, ids], schema=schema))
"""
rows = partial(build.rows, v=lambda number: f"v{number}")


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the code of the older commit."""
    return code_of(BEFORE_REPUSH, tmp_path_factory.mktemp("older"))


def code_of(commit: str, place: Path) -> Path:
    """Put the code of a commit below a folder; return where it is."""
    git = shutil.which("git")
    if git is None:
        missing("git is not installed")
    packed = subprocess.run(
        [str(git), "-C", str(ROOT), "archive", commit, "src/plait"],
        capture_output=True,
        check=False,
    )
    if packed.returncode:
        why = packed.stderr.decode("utf-8", "replace").strip()
        missing(f"the history of the repository is not here: {why}")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(place, filter="data")
    return place / "src"


def command(older: Path, *words: str) -> dict[str, object]:
    """Return how to run the older code."""
    return {
        "args": [sys.executable, str(Path(__file__).with_name("older.py")), *words],
        "env": {**os.environ, "PYTHONPATH": str(older), "PYTHONSAFEPATH": "1"},
        "cwd": older,
        "text": True,
    }


def run(older: Path, *words: str, stdin: str = "") -> str:
    done = subprocess.run(
        **command(older, *words),  # type: ignore[call-overload]  # its keywords
        input=stdin,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def made(place: str) -> Table:
    """Make a table that used features of later releases, and gave them up."""
    table = Table.create(place, "id bigint, v string", record_key="id", buckets=1)
    table.upsert(rows(1, 2))
    table.alter.set({"rows.written": "on"})
    table.upsert(rows(2, 3))
    table.alter.set({"rows.written": "off"})
    table.alter.downgrade(to=list(FEATURES))
    table.upsert(rows(3, 4))
    return table


@pytest.mark.parametrize("commit", PRE_RELEASES)
def test_a_table_of_a_pre_release_is_another_format_and_not_damaged(
    commit: str, tmp_path: Path
) -> None:
    """The error names what is other, and neither a backup nor ``repair`` is advised."""
    code = code_of(commit, tmp_path)
    made = subprocess.run(
        [sys.executable, "-c", MAKE, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(code), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    for table in ("inline", "manifests"):
        with pytest.raises(UnsupportedFeatureError) as refused:
            Table.open(str(tmp_path / table)).scan().to_arrow()
        told = refused.value.facts["features"]
        assert isinstance(told, list)
        assert PRE_RELEASES[commit] in told or "no order" in told


def test_an_older_plait_reads_a_golden_table_or_refuses_it_by_name(
    older: Path, tmp_path: Path
) -> None:
    """INV-04: it never shows other rows."""
    for name in TABLES:
        shutil.copytree(V1 / name, tmp_path / name, copy_function=shutil.copyfile)
    said = json.loads(run(older, "read", *(str(tmp_path / name) for name in TABLES)))
    newer = set(KNOWN) - set(said["known"])
    assert {"repush-1", "writer-features-1"} <= newer
    read = set()
    for name in TABLES:
        found = said["tables"][str(tmp_path / name)]
        if "rows" in found:
            read.add(name)
            shown = Table.open(str(tmp_path / name)).scan().to_arrow().to_pylist()
            lines = [json.dumps(list(r.values()), default=str, ensure_ascii=False) for r in shown]
            assert found["rows"] == sorted(lines), name
        else:
            assert found["refused"], name
            assert set(found["refused"]) <= newer, name
            assert found["refused"] == REFUSED.get(name, found["refused"]), name
    assert not read & {"combined", *REFUSED}
    assert read >= {"types", "merged", "events", "restored", "expired", "archived", "downgraded"}


def test_an_older_plait_reads_and_writes_a_table_that_was_downgraded(
    older: Path, tmp_path: Path
) -> None:
    """INV-04, INV-05: and the newer one goes on from there."""
    place = str(tmp_path / "table")
    table = made(place)
    found = json.loads(run(older, "read", place))["tables"][place]
    assert found["rows"] == [f'[{number}, "v{number}"]' for number in (1, 2, 3, 4)]
    version = int(run(older, "write", place, stdin='{"id": 5, "v": "older"}'))
    assert table.version == version
    table.upsert(rows(6))
    shown = {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()}
    assert shown == {**{n: f"v{n}" for n in (1, 2, 3, 4, 6)}, 5: "older"}
    assert {row["id"]: row["v"] for row in Reader(place).rows()} == shown
    assert table.check.verify().clean


def test_an_older_plait_refuses_a_table_from_the_first_use_of_a_newer_feature_on(
    older: Path, tmp_path: Path
) -> None:
    place = str(tmp_path / "table")
    table = made(place)
    table.alter.upgrade(features=["rows-written-1"])
    found = json.loads(run(older, "read", place))["tables"][place]
    assert found == {"refused": ["writer-features-1"]}


def test_a_live_writer_of_an_older_plait_holds_up_an_upgrade_and_a_downgrade(
    older: Path, tmp_path: Path
) -> None:
    """Its pending record does not say what it knows."""
    place = str(tmp_path / "table")
    table = made(place)
    with subprocess.Popen(
        **command(older, "hold", place),  # type: ignore[call-overload]  # its keywords
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as writer:
        assert writer.stdout.readline() == "begun\n"
        version = table.version
        with pytest.raises(FeatureError) as refused:
            table.alter.upgrade()
        assert len(refused.value.live) == 1
        assert table.alter.upgrade(dry_run=True).older[0].pid == writer.pid
        assert table.version == version
        writer.stdin.close()
        assert writer.wait() == 0
    assert table.alter.upgrade() is not None
