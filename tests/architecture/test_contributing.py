"""CONTRIBUTING.md names every room, and only files that are there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`([\w.-]*[\w/.-]*(?:/|\.(?:py|md|toml|txt|yml|json|tla)))`")
LINES_MAX = 200


def layers() -> list[str]:
    """Return the rooms, from the top, as the import contract has them."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    (ladder,) = (each["layers"] for each in contracts if each["id"] == "layers")
    names = [name.strip() for layer in ladder for name in layer.split("|")]
    return [name for name in names if not name.startswith("(")]


def test_the_table_of_rooms_is_whole_and_in_the_order_of_imports() -> None:
    table = "\n".join(re.findall(r"^\| (`.*?) \| .* \|$", TEXT, re.MULTILINE))
    rooms = [name.removesuffix("/").removesuffix(".py") for name in re.findall(r"`(.+?)`", table)]
    assert rooms == layers()


def test_every_file_that_it_names_exists() -> None:
    named = set(NAMED.findall(TEXT))
    assert len(named) > 60
    places = (ROOT, ROOT / "src/plait")
    assert {each for each in named if not any((p / each).exists() for p in places)} == set()


def test_it_is_short_enough_to_be_read() -> None:
    assert len(TEXT.splitlines()) < LINES_MAX
