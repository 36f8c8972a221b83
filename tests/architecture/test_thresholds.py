"""Each number of the source is known: a threshold that tests can lower, or something else."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from tests.support import thresholds as told
from tests.support.thresholds import FORMAT, PACE, REFUSED, ROOT, SOURCE, TIME, TOLD, numbers

OTHERS = (FORMAT, REFUSED, TOLD, PACE)


def constants() -> set[str]:
    """Return ``module.NAME`` of each number of the source, but for times."""
    found = set()
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        if not module.startswith("testing."):
            found |= {f"{module}.{name}" for name in numbers(path.read_text("utf-8"))}
    return {each for each in found if not TIME.search(each.rpartition(".")[2])}


def test_every_number_is_a_threshold_that_can_be_lowered_or_said_to_be_none() -> None:
    """A new one is put into LOWEST; or into another list, if no path of the code hangs on it."""
    known = {*told.thresholds(), *(name for each in OTHERS for name in told.names(each))}
    new, gone = sorted(constants() - known), sorted(known - constants())
    assert not new, f"put into one of the lists of tests/support/thresholds.py: {new}"
    assert not gone, f"take out of the lists of tests/support/thresholds.py: {gone}"


def test_no_number_is_listed_twice() -> None:
    listed = Counter([*told.thresholds(), *(name for each in OTHERS for name in told.names(each))])
    assert [name for name, count in listed.items() if count > 1] == []


def test_a_program_that_lowers_thresholds_sees_each_of_them_low_wherever_it_is_named() -> None:
    """Copies in other modules, and numbers that follow from it, too."""
    program = """
import tests, importlib, inspect
from tests.support.thresholds import thresholds
for each, to in thresholds().items():
    module, _, name = each.rpartition(".")
    if not module.startswith(("spark", "kafka")):
        assert getattr(importlib.import_module(f"plait.{module}"), name) == to, each
from plait.arrow import output
from plait.services.maintenance import archive
from plait.index.builder import RunBuilder
from plait.model.contract import OPTIONS
assert (output.GROUP_ROWS, archive._FULL) == (1, 0)
assert inspect.signature(RunBuilder).parameters["memory_bytes"].default == 1
sizes = [each for each in OPTIONS.values() if each.kind == "size"]
assert len(sizes) > 3 and {each.default for each in sizes} == {"1"}
assert OPTIONS["checkpoint.interval"].default == "1"
"""
    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", told.SWITCH: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.skipif(told.are_low(), reason="they are low already")
def test_thresholds_are_not_lowered_once_a_module_has_them() -> None:
    """Else half of the code would have them as they are."""
    with pytest.raises(RuntimeError):
        told.lower()
