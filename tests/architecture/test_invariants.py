"""Each invariant of the specification has tests that cite it, and no test cites another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.invariants import NAME, cited, promises

TESTS = Path(__file__).resolve().parents[1]
CITED = cited()


@pytest.mark.parametrize("name", promises())
def test_an_invariant_is_cited_by_tests(name: str) -> None:
    assert CITED.get(name), f"no test says that it holds {name}"


def test_no_test_cites_an_invariant_that_there_is_not() -> None:
    known = promises()
    assert len(known) > 10
    wrong = {
        f"{path.relative_to(TESTS)}: {name}"
        for path in TESTS.rglob("*.py")
        for name in NAME.findall(path.read_text("utf-8"))
        if name not in known
    }
    assert wrong == set()
