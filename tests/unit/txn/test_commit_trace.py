"""The commit loop does the same, call by call, as when the golden records were made.

``commit_trace.txt`` has what one client did in each scene: its phases, its calls of the store and
of the lock, what was staged, and each decision that it published. The records were made once, by
the commit loop as it was before its state became a value with transitions. They do not say what is
right. They show whether a change of the loop's code changes what the loop does.

If a change is meant to do that, make the records anew, and read the difference:

    python -m tests.support.commit_scenes > tests/unit/txn/commit_trace.txt
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commit_scenes import SCENES, play

GOLDEN = Path(__file__).with_name("commit_trace.txt")


def golden() -> dict[str, list[str]]:
    """Return the record of each scene."""
    records: dict[str, list[str]] = {}
    for block in GOLDEN.read_text(encoding="utf-8").split("== ")[1:]:
        name, _, record = block.partition("\n")
        records[name] = record.strip().splitlines()
    return records


RECORDS = golden()


def test_every_scene_has_a_record() -> None:
    assert list(RECORDS) == list(SCENES)


@pytest.mark.parametrize("name", SCENES)
def test_a_commit_does_the_same_as_when_its_record_was_made(name: str) -> None:
    """INV-07, INV-10, INV-15: each way through the loop, with the calls that it makes."""
    assert play(name) == RECORDS[name]
