"""A record is a dead letter exactly if the table would refuse its row (INV-03)."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from plait import SchemaError, Table
from plait.arrow.check import prepare
from plait.kafka.records.row_check import RowCheck
from plait.model.plan import TableSpec
from tests.support.memory import forget

NAMES = itertools.count()
COLUMNS = {
    "id": pa.int32(),
    "a": pa.int32(),
    "b": pa.int32(),
    "x": pa.float64(),
    "double": pa.int32(),
    "ratio": pa.float64(),
}
DDL = "id int not null, a int, b int, x double, double int, ratio double"
REQUIRED = f"{DDL.removesuffix(', ratio double')} not null, ratio double not null"
CHECKS = {"least": "b > -3", "sum": "a + b < 10", "made": "double <> 6", "some": "10 / b <> 5"}
GENERATED = {"double": "a * 2", "ratio": "x / b"}

numbers = st.sampled_from([-3, 0, 2, 3, 7, 2**31 - 1]) | st.none()
rows = st.fixed_dictionaries(
    {
        "id": st.integers(1, 9) | st.none(),
        "a": numbers,
        "b": numbers,
        "x": st.sampled_from([0.0, 1.5, float("nan"), float("inf")]) | st.none(),
        "double": st.sampled_from([4, 6]) | st.none(),
        "ratio": st.just(1.5) | st.none(),
    }
)
GOOD = {"id": 1, "a": 2, "b": 3, "x": 1.5, "double": None, "ratio": None}


def refuses(spec: TableSpec, row: pa.Table) -> bool:
    try:
        list(prepare(row, spec))
    except SchemaError:
        return True
    return False


@given(
    found=st.lists(rows, min_size=1, max_size=8),
    required=st.booleans(),
    checks=st.sets(st.sampled_from(sorted(CHECKS))),
    generated=st.sets(st.sampled_from(sorted(GENERATED))),
    ordering=st.sampled_from([None, "x", "b"]),
)
@example([GOOD, GOOD | {"b": 0}, GOOD], False, {"some"}, set(), None)
@example([GOOD, GOOD | {"a": 2**31 - 1}, GOOD | {"double": 6}], False, set(), {"double"}, None)
@example([GOOD | {"a": None}, GOOD | {"a": 3}, GOOD], True, {"made"}, {"double", "ratio"}, None)
def test_a_record_is_a_dead_letter_exactly_if_its_row_would_be_refused(
    found: list[dict[str, Any]],
    required: bool,
    checks: set[str],
    generated: set[str],
    ordering: str | None,
) -> None:
    table = Table.create(
        uri := f"memory://dead-{next(NAMES)}",
        REQUIRED if required else DDL,
        record_key="id",
        ordering=ordering,
        checks={name: CHECKS[name] for name in checks},
        generated={name: GENERATED[name] for name in generated},
    )
    spec = table._handle.cache.known().table.spec
    brought = pa.Table.from_pylist(found, pa.schema(list(COLUMNS.items())))
    told = dict(RowCheck.of(spec).refused(brought))
    alone = [refuses(spec, brought.slice(at, 1)) for at in range(len(found))]
    assert sorted(told) == [at for at, bad in enumerate(alone) if bad]
    assert all(told.values())
    taken = brought.filter(pa.array([not bad for bad in alone]))
    assert not refuses(spec, taken)
    forget(uri)
