"""What a review of keys that move between partitions found (RFC 0030)."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from plait import Table

_NAMES = itertools.count()
each_type = pytest.mark.parametrize("kind", ["cow", "mor"])


def made(kind: str) -> Table:
    return Table.create(
        f"memory://review-of-moves-{next(_NAMES)}",
        "id bigint, place string, n bigint",
        record_key=["id"],
        partition_by=["place"],
        table_type=kind,
        unique="table",
    )


def rows(*values: tuple[int, str, int]) -> pa.Table:
    ids, places, numbers = zip(*values, strict=True)
    return pa.table({"id": pa.array(ids), "place": pa.array(places), "n": pa.array(numbers)})


@each_type
@pytest.mark.parametrize("layout", [[], ["bucket(2, id)"]], ids=["none", "by the key"])
def test_a_move_stays_one_update_once_the_table_has_no_such_partitions(
    kind: str, layout: list[str]
) -> None:
    """INV-08: a delete after an insert would take the row away from who applies the changes."""
    table = made(kind)
    table.upsert(rows((1, "b", 1), (2, "b", 1)))
    table.upsert(rows((1, "a", 2)))
    table.repush(partition_by=layout)
    table.upsert(rows((1, "c", 3)))
    feed = table.changes(since=1).to_arrow().to_pylist()
    assert [(row["_change_type"], row["id"], row["place"]) for row in feed] == [
        ("update_preimage", 1, "b"),
        ("update_postimage", 1, "a"),
        ("update_preimage", 1, "a"),
        ("update_postimage", 1, "c"),
    ]
