"""docs/architecture.md names the modules that each operation really passes through."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.hops import OPERATIONS, ROOT, measure

PAGE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"
TEXT = PAGE.read_text(encoding="utf-8")
MODULE = re.compile(r"`([\w/]+\.py)`")
SECTION = re.compile(r"^## How an? ([\w ]+?) works?\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
SECTIONS = {match[1]: match[2] for match in SECTION.finditer(TEXT)}
STEP = re.compile(r"^(?:\d+\.|  ) .*$", re.MULTILINE)


def named_in_steps(section: str) -> list[str]:
    """Return the modules in the numbered steps; a paragraph after them names special cases."""
    return [name for step in STEP.findall(section) for name in MODULE.findall(step)]


def test_the_page_explains_every_operation_that_is_measured() -> None:
    assert sorted(SECTIONS) == sorted(OPERATIONS)


def test_every_module_that_the_page_names_exists() -> None:
    assert [name for name in MODULE.findall(TEXT) if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_enters_every_module_that_its_steps_name(name: str) -> None:
    named = named_in_steps(SECTIONS[name])
    entered = measure(name)[name].files
    assert len(set(named)) > 3
    assert [module for module in named if module not in entered] == []
