"""What a part of a transaction chose is replaced only if the part is an overwrite (INV-07)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from plait import RetryableConflictError, Table, Transaction
from tests.support import build
from tests.support.build import make
from tests.support.protocol import beside

rows = partial(build.tuples, "id v")


def made(table_type: str, isolation: str = "snapshot") -> Table:
    return make(
        buckets=1,
        table_type=table_type,
        isolation=isolation,
        upsert=rows((1, 10), (2, 20), (3, 30), (4, 40)),
    )


PARTS: dict[str, Callable[[Transaction], object]] = {
    "delete of nothing": lambda x: x.delete(where="v > 100"),
    "delete": lambda x: x.delete(where="v > 15"),
    "update": lambda x: x.update({"v": "7"}, where="v > 15"),
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_row_that_comes_is_not_replaced_by_what_another_part_chose(
    table_type: str, part: str
) -> None:
    table = made(table_type)
    other = beside(table, "publish", lambda: table.insert(rows((6, 200))))
    with other.transaction() as block:
        block.overwrite(rows((5, 3)), where="id = 5")
        PARTS[part](block)
    assert 5 in table.scan().to_arrow()["id"].to_pylist()


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_row_that_an_overwrite_chose_is_met(table_type: str, isolation: str) -> None:
    table = made(table_type, isolation)
    other = beside(table, "publish", lambda: table.insert(rows((6, 200))))

    def both() -> None:
        with other.transaction() as block:
            block.delete(where="v = 10")
            block.overwrite(rows((5, 300)), where="v > 100")

    with pytest.raises(RetryableConflictError):
        both()


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_what_a_part_chose_counts_where_reads_do(table_type: str) -> None:
    table = made(table_type, "serializable")
    other = beside(table, "publish", lambda: table.insert(rows((6, 200))))

    def both() -> None:
        with other.transaction() as block:
            block.overwrite(rows((5, 3)), where="id = 5")
            block.delete(where="v > 100")

    with pytest.raises(RetryableConflictError):
        both()
