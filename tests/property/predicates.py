"""Random conditions: what SQL calls them, and what the book says of a row."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from plait.expr import parse_ddl

SCHEMA = parse_ddl(
    "id bigint, t tinyint, d decimal(5,2), s string, f double, g float, b boolean, day date, "
    "ts timestamp, tn timestamp_ntz, x binary, st struct<a:int>"
)
BEYOND_LONG = "1" + "0" * 20
NAN, INF = math.nan, math.inf
NARROW = float(np.float32(0.1))
UTC = dt.UTC
Row = dict[str, Any]
Truth = Callable[[Row], bool | None]


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal as SQL text, and what it stands for."""

    sql: str
    value: Any


@dataclass(frozen=True, slots=True, repr=False)
class Spec:
    """A condition as SQL text, and its truth in a row: True, False or None."""

    sql: str
    truth: Truth

    def __repr__(self) -> str:
        return self.sql


def quoted(text: str) -> str:
    body = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + body.replace("\n", "\\n").replace("\0", "\\u0000") + "'"


def _numbers(*texts: str) -> list[Literal]:
    return [Literal(text, Decimal(text)) for text in texts]


def _reals(*texts: str) -> list[Literal]:
    return [Literal(text, float(text)) for text in texts] + [
        Literal("CAST('NaN' AS DOUBLE)", NAN),
        Literal("CAST('-Infinity' AS DOUBLE)", -INF),
        Literal("1.5D", 1.5),
    ]


TEXTS = [
    "",
    "a",
    "ab",
    "abc",
    "b",
    "ü",
    "a%b",
    "a_b",
    "a\\b",
    "it's",
    "\n",
    "a\0" + "1",
    "😀",
    "${x}",
    "b" * 70,
]
"""The last is longer than the bounds that a file tells of it."""
DAYS = [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2026, 1, 1), dt.date(9999, 12, 31)]
MOMENTS = [
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001 - the zone comes with the column
    dt.datetime(2026, 1, 1),  # noqa: DTZ001
    dt.datetime(2026, 1, 1, 12, 30, 0, 1),  # noqa: DTZ001
]
BYTES = [b"", b"a", b"\x00", b"\xff"]

VALUES: dict[str, list[Any]] = {
    "id": [-(2**63), -3, 0, 1, 2, 3, 2**63 - 1],
    "t": [-128, -1, 0, 1, 127],
    "d": [Decimal(text) for text in ("-999.99", "0.00", "1.50", "1.55", "2.00", "999.99")],
    "s": TEXTS,
    "f": [-INF, -1.0, -0.0, 0.0, 0.1, 1.5, INF, NAN],
    "g": [-0.0, 0.0, NARROW, 1.5, 16777216.0, NAN],
    "b": [True, False],
    "day": DAYS,
    "ts": [moment.replace(tzinfo=UTC) for moment in MOMENTS],
    "tn": MOMENTS,
    "x": BYTES,
    "st": [{"a": value} for value in (-1, 0, 7)] + [{"a": None}],
}
LITERALS: dict[str, list[Literal]] = {
    "id": [
        *_numbers("-9223372036854775808", "0", "1", "2.5", "3", "9223372036854775807", "1e1"),
        Literal("5L", 5),
        Literal(BEYOND_LONG, 10**20),
    ],
    "t": [*_numbers("-129", "-128", "0", "0.5", "1", "127", "1000"), Literal("1Y", 1)],
    "d": _numbers("-1000", "0", "1.5", "1.555", "2", "999.99", "1000.001"),
    "s": [Literal(quoted(text), text) for text in TEXTS],
    "f": _reals("-1", "0", "0.1", "1.5", "100"),
    "g": [*_reals("-1", "0", "0.1", "1.5"), Literal("CAST('0.1' AS FLOAT)", NARROW)],
    "b": [Literal("TRUE", value=True), Literal("false", value=False)],
    "day": [Literal(f"DATE '{day.isoformat()}'", day) for day in DAYS]
    + [Literal("'2026-01-01'", DAYS[2])],
    "ts": [
        Literal(f"TIMESTAMP '{moment.isoformat(sep=' ')}Z'", moment.replace(tzinfo=UTC))
        for moment in MOMENTS
    ]
    + [Literal("'2026-01-01T02:00:00+02:00'", MOMENTS[1].replace(tzinfo=UTC))],
    "tn": [Literal(f"TIMESTAMP_NTZ '{moment.isoformat(sep=' ')}'", moment) for moment in MOMENTS],
    "x": [Literal(f"X'{value.hex()}'", value) for value in BYTES],
    "st.a": _numbers("-1", "0", "7", "7.5", "3000000000"),
}
PATTERNS = [
    "",
    "%",
    "a%",
    "%b",
    "a_",
    "_",
    "%a%b%",
    "a\\%b",
    "a\\_%",
    "%\\\\%",
    "ü",
    "ab%c",
    "\n%",
    "i_'s",
]
OPERATORS = ("=", "!=", "<", "<=", ">", ">=")
ROWS = st.fixed_dictionaries(
    {name: st.none() | st.sampled_from(values) for name, values in VALUES.items()}
)
COLUMNS = st.sampled_from(sorted(LITERALS))


def table_of(rows: list[Row]) -> pa.Table:
    """Put rows into a table, with their numbers in column ``at``."""
    numbered = [{**row, "at": at} for at, row in enumerate(rows)]
    return pa.Table.from_pylist(numbered, schema=SCHEMA.append(pa.field("at", pa.int32())))


def cell(row: Row, name: str) -> Any:
    """Give the value of a column or of a field of a struct."""
    first, _, rest = name.partition(".")
    value = row[first]
    return value[rest] if rest and value is not None else value


def holds(op: str, left: Any, right: Any) -> bool | None:
    """Compare as SQL does: NULL for nulls, NaN equal to itself and greater than all."""
    if left is None or right is None:
        return None
    one, other = order(left), order(right)
    return {
        "=": one == other,
        "!=": one != other,
        "<": one < other,
        "<=": one <= other,
        ">": one > other,
        ">=": one >= other,
    }[op]


def order(value: Any) -> tuple[bool, Any]:
    """Give a key that sorts as SQL does."""
    nan = isinstance(value, float) and math.isnan(value)
    if isinstance(value, str):
        return False, value.encode()
    return nan, 0 if nan else value


def like(pattern: str, text: str) -> bool:
    """Match by the definition, one character at a time."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(like(pattern[1:], text[at:]) for at in range(len(text) + 1))
    escaped = pattern[0] == "\\"
    wanted, rest = (pattern[1], pattern[2:]) if escaped else (pattern[0], pattern[1:])
    return (
        bool(text)
        and (text[0] == wanted or (wanted == "_" and not escaped))
        and like(rest, text[1:])
    )


def inverse(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def both(one: bool | None, other: bool | None) -> bool | None:
    return False if False in (one, other) else None if None in (one, other) else True


@st.composite
def leaves(draw: st.DrawFn, columns: st.SearchStrategy[str] = COLUMNS) -> Spec:
    name = draw(columns)
    one, other = draw(st.sampled_from(LITERALS[name])), draw(st.sampled_from(LITERALS[name]))
    op = draw(st.sampled_from(OPERATORS))
    kinds = ["compare", "mirrored", "null", "in", "between", "safe"]
    match draw(st.sampled_from(kinds + ["like"] * 4 * (name == "s") + ["bare"] * (name == "b"))):
        case "compare":
            return Spec(f"{name} {op} {one.sql}", lambda r: holds(op, cell(r, name), one.value))
        case "mirrored":
            return Spec(f"{one.sql} {op} {name}", lambda r: holds(op, one.value, cell(r, name)))
        case "null":
            return Spec(f"{name} IS NULL", lambda r: cell(r, name) is None)
        case "in":
            nulls = draw(st.lists(st.just(Literal("NULL", None)), max_size=1))
            items = [one, other, *nulls]
            return Spec(
                f"{name} IN ({', '.join(item.sql for item in items)})",
                lambda r: inverse(_none_of(cell(r, name), items)),
            )
        case "between":
            return Spec(
                f"{name} BETWEEN {one.sql} AND {other.sql}",
                lambda r: both(
                    holds(">=", cell(r, name), one.value), holds("<=", cell(r, name), other.value)
                ),
            )
        case "safe":
            return Spec(
                f"{name} <=> {one.sql}", lambda r: bool(holds("=", cell(r, name), one.value))
            )
        case "like":
            pattern = draw(st.sampled_from(PATTERNS))
            return Spec(
                f"{name} LIKE {quoted(pattern)}",
                lambda r: None if r["s"] is None else like(pattern, r["s"]),
            )
    return Spec(name, lambda r: cell(r, name))


def _none_of(value: Any, items: list[Literal]) -> bool | None:
    truth: bool | None = True
    for item in items:
        truth = both(truth, holds("!=", value, item.value))
    return truth


def _combined(inner: st.SearchStrategy[Spec]) -> st.SearchStrategy[Spec]:
    return st.one_of(
        inner.map(lambda one: Spec(f"NOT ({one})", lambda r: inverse(one.truth(r)))),
        st.tuples(inner, inner).map(
            lambda pair: Spec(
                f"({pair[0]}) AND ({pair[1]})", lambda r: both(pair[0].truth(r), pair[1].truth(r))
            )
        ),
        st.tuples(inner, inner).map(
            lambda pair: Spec(
                f"({pair[0]}) OR ({pair[1]})",
                lambda r: inverse(both(inverse(pair[0].truth(r)), inverse(pair[1].truth(r)))),
            )
        ),
    )


CONSTANTS = st.sampled_from(
    [Spec("TRUE", lambda _: True), Spec("FALSE", lambda _: False), Spec("NULL", lambda _: None)]
)
SPECS: st.SearchStrategy[Spec] = st.recursive(
    st.integers(0, 19).flatmap(lambda n: CONSTANTS if n == 0 else leaves()), _combined, max_leaves=6
)
