"""The chosen mutants follow the code: each stands in its file, once, and its tests are there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import plait

PACKAGE, ROOT = Path(plait.__file__).parent, Path(__file__).resolve().parents[2]
FILE = re.compile(r"tests/[\w/]+(?:\.py)?")
CHOSEN = tomllib.loads((ROOT / "scripts" / "mutants.toml").read_text("utf-8"))["chosen"]


def test_each_chosen_mutant_changes_one_place() -> None:
    """``make mutants`` says so too, after minutes."""
    counts = {
        f"{each['path']}: {each['before']}": (PACKAGE / each["path"])
        .read_text("utf-8")
        .count(each["before"])
        for each in CHOSEN
    }
    assert len(CHOSEN) > 200
    assert {place: count for place, count in counts.items() if count != 1} == {}


def test_the_tests_that_kill_a_chosen_mutant_are_there() -> None:
    files = {name for each in CHOSEN for name in FILE.findall(each["tests"])}
    assert len(files) > 20
    assert sorted(name for name in files if not (ROOT / name).exists()) == []
