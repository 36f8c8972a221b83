"""Every trip is bounded, and the pages name modules that it really passes through."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from scripts.hops import (
    CEILINGS,
    DATAFRAME,
    OPERATIONS,
    ROOT,
    Hops,
    Trip,
    measure,
    measure_dataframe,
)

DOCS = Path(__file__).resolve().parents[2] / "docs"
ARCHITECTURE = DOCS / "architecture.md"
PAGES = [ARCHITECTURE, *sorted(DOCS.glob("internals/*.md"))]
MODULE = re.compile(r"`([\w/]+\.py)`")
SECTION = re.compile(r"^## How an? ([\w ]+?) works?\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
TOLD = [match for page in PAGES for match in SECTION.finditer(page.read_text(encoding="utf-8"))]
SECTIONS = {match[1]: match[2] for match in TOLD}
STEP = re.compile(r"^(?:\d+\.|  ) .*$", re.MULTILINE)


def named_in_steps(section: str) -> list[str]:
    """Return the modules in the numbered steps; a paragraph after them names special cases."""
    return [name for step in STEP.findall(section) for name in MODULE.findall(step)]


def test_the_architecture_tells_three_trips_and_no_trip_is_told_twice() -> None:
    told = SECTION.findall(ARCHITECTURE.read_text(encoding="utf-8"))
    assert [name for name, _ in told] == ["upsert", "conflict", "scan"]
    assert len(TOLD) == len(SECTIONS)
    assert SECTIONS.keys() <= OPERATIONS.keys()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    named = MODULE.findall(page.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_enters_few_modules_and_those_that_its_steps_name(name: str) -> None:
    """A capability costs those who do not use it nothing, also when one reads the code."""
    hops = measure(name)[name]
    stays_below(CEILINGS[name], hops)
    if name in SECTIONS:
        named = named_in_steps(SECTIONS[name])
        assert len(set(named)) > 3
        assert [module for module in named if module not in hops.files] == []


def stays_below(most: Trip, hops: Hops) -> None:
    assert len(hops.files) <= most.files, sorted(hops.files)
    assert sum(hops.files.values()) <= most.calls, hops.files
    assert len(hops.few) <= most.few, hops.few


@pytest.mark.spark
def test_the_driver_enters_few_modules_for_an_upsert_of_a_dataframe(
    spark: SparkSession, tmp_path: Path
) -> None:
    stays_below(CEILINGS[DATAFRAME], measure_dataframe(spark, str(tmp_path / "t")))


def test_every_trip_has_a_ceiling() -> None:
    assert set(CEILINGS) == {*OPERATIONS, DATAFRAME}
