"""What is packed for executors: Plait, what it imports, nothing that they have anyway."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

import pytest

from plait import OptionError
from plait.spark import pack, session
from plait.spark.packaging import PROVIDED

PROBE = """
import sys
import plait, plait.table, plait.files.deletion, plait.files.hash, plait.expr.sql, pyspark_plait
ours = [m.__file__ for n, m in sys.modules.items() if n.split(".")[0] in {"plait", "pyroaring",
        "sqlglot", "xxhash", "pyspark_plait"} and getattr(m, "__file__", None)]
assert ours and all(each.startswith(sys.argv[1]) for each in ours), ours
from importlib.metadata import entry_points
assert [point.name for point in entry_points(group="plait.engines")] == ["pyspark"]
"""


def names(path: Path) -> set[str]:
    with ZipFile(path) as archive:
        return set(archive.namelist())


@pytest.mark.slow
def test_packed_plait_is_whole_and_has_extras_only_when_asked_for(tmp_path: Path) -> None:
    """Unpacked in front of everything else, each module comes from it."""
    settings = pack(tmp_path / "plait.zip")
    assert settings == {
        "spark.archives": f"{(tmp_path / 'plait.zip').as_uri()}#plait-packages",
        "spark.executorEnv.PYTHONPATH": "plait-packages",
    }
    place = tmp_path / "unpacked"
    with ZipFile(tmp_path / "plait.zip") as archive:
        archive.extractall(place)
    command = [sys.executable, "-c", PROBE, str(place)]
    environment = {**os.environ, "PYTHONPATH": str(place)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = names(tmp_path / "plait.zip")
    assert not {name.split("/")[0] for name in found} & {*PROVIDED, "py4j"}
    assert not [name for name in found if name.endswith(".pyc") or name.startswith(("/", ".."))]
    assert f"plait-{distribution('plait').version}.dist-info/METADATA" in found
    assert not any(name.startswith("kazoo/") for name in found)
    pack(tmp_path / "with.zip", extras=["zookeeper"])
    assert any(name.startswith("kazoo/") for name in names(tmp_path / "with.zip"))


@pytest.mark.parametrize(
    ("name", "extras", "key"),
    [
        ("plait.zip", ["s4"], "extras"),
        ("plait", [], "path"),
        ("plait.tar.gz", [], "path"),
        ("a#b.zip", [], "path"),
    ],
)
def test_what_cannot_be_packed_or_unpacked_is_refused_before_anything_is_written(
    tmp_path: Path, name: str, extras: list[str], key: str
) -> None:
    with pytest.raises(OptionError) as caught:
        pack(tmp_path / name, extras=extras)
    assert caught.value.key == key
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("config", "hint"),
    [
        ({"remote": "spark://host:7077"}, "sc://"),
        ({"remote": "local[2]"}, "sc://"),
        ({"remote": "sc://host", "master": "local[2]"}, "master"),
        ({"remote": "sc://host", "spark.master": "local[2]"}, "master"),
    ],
)
def test_servers_that_are_none_are_refused(config: dict[str, str], hint: str) -> None:
    with pytest.raises(OptionError) as caught:
        session(**config)
    assert caught.value.key == "remote"
    assert hint in str(caught.value) + caught.value.hint
