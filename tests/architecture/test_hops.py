"""docs/architecture.md names the modules that each operation really passes through."""

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
def test_an_operation_enters_every_module_that_its_steps_name_and_few_others(name: str) -> None:
    """A capability costs those who do not use it nothing, also when one reads the code."""
    named = named_in_steps(SECTIONS[name])
    hops = measure(name)[name]
    assert len(set(named)) > 3
    assert [module for module in named if module not in hops.files] == []
    stays_below(CEILINGS[name], hops)


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
