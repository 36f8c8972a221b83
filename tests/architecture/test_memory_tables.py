"""No two test files count up tables of one name: in one process the second would find the first."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
COUNTED = re.compile(r"memory://([\w-]+)-\{next\((\w+)\)")


def test_tables_in_memory_that_are_counted_have_names_of_their_own() -> None:
    """Files that take their numbers from one shared counter, as NAMES of support, may share."""
    files: dict[str, set[str]] = defaultdict(set)
    for path in sorted(TESTS.rglob("*.py")):
        for name, counter in COUNTED.findall(path.read_text(encoding="utf-8")):
            if counter.startswith("_"):
                files[name].add(str(path.relative_to(TESTS)))
    assert len(files) > 20, "the pattern finds no tables any more"
    assert {name: where for name, where in files.items() if len(where) > 1} == {}
