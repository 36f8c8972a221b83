"""SQL text means what Spark SQL means by it, or is refused."""

from __future__ import annotations

import math
import subprocess
import sys

import pyarrow as pa
import pytest

from plait.errors import PredicateError
from plait.expr import TRUE, negate, parse_ddl, parse_where, to_sql
from plait.expr.tree import IsNull, Like
from tests.support.expressions import filtered

SCHEMA = parse_ddl(
    "id bigint not null, t tinyint, d decimal(5,2), s string, f double, g float, b boolean, "
    "day date, ts timestamp, tn timestamp_ntz, x binary, st struct<a:int,`B c`:string>"
)


def test_supported_text_selects_rows() -> None:
    """A row is selected only if the predicate is TRUE for it."""
    table = pa.table(
        {"id": [1, 2, 3, 4], "s": ["a", None, "ab", "b"], "f": [1.0, math.nan, None, -1.0]},
        schema=pa.schema([SCHEMA.field(n) for n in ("id", "s", "f")]),
    )
    cases = {
        "id = 2": [2],
        "2 < id": [3, 4],
        "(2) < (id)": [3, 4],
        "id BETWEEN 2 AND 3": [2, 3],
        "NOT id BETWEEN NULL AND 3": [4],
        "s LIKE 'a%'": [1, 3],
        "s NOT LIKE 'a%'": [4],
        "s IN ('a', NULL)": [1],
        "s NOT IN ('a', NULL)": [],
        "NOT (s = 'a')": [3, 4],
        "s <=> NULL": [2],
        "s IS DISTINCT FROM 'a'": [2, 3, 4],
        "s IS NOT DISTINCT FROM NULL": [2],
        "s IS NOT NULL AND id > 1": [3, 4],
        "f > 100": [2],
        "f >= CAST('NaN' AS DOUBLE)": [2],
        "NOT (f <= 0)": [1, 2],
        "id < 2.5": [1, 2],
        "id = 2.5 OR id <=> 4": [4],
        "`ID` != -1 AND true": [1, 2, 3, 4],
        "id = 1 -- a comment": [1],
        "id = 1;": [1],
    }
    for text, expected in cases.items():
        found = filtered(table, parse_where(text, table.schema))["id"].to_pylist()
        assert found == expected, text


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("t < 128", "t IS NOT NULL OR NULL"),
        ("t = -129", "t IS NULL AND NULL"),
        ("t <=> 128", "t IS NOT NULL AND t = 128"),
        ("t IN (128, 3)", "t IN (3)"),
        ("id < 2.5", "id <= 2"),
        ("id >= 2.5", "id > 2"),
        ("id > -2.5", "id > -3"),
        ("id = 9223372036854775808", "id IS NULL AND NULL"),
        ("d < 1.555", "d <= 1.55"),
        ("d != 1.555", "d IS NOT NULL OR NULL"),
        ("d = 2", "d = 2.00"),
        ("id = 5L", "id = 5"),
        ("id = CAST('5' AS INT)", "id = 5"),
        ("day = '2026-01-01'", "day = DATE '2026-01-01'"),
        ("ts = '2026-01-01'", "ts = TIMESTAMP '2026-01-01 00:00:00Z'"),
        ("ts = TIMESTAMP '2026-01-01 01:30:00+01:30'", "ts = '2026-01-01T00:00:00Z'"),
        ("ts = TIMESTAMP '2026-01-01 00:00:00 UTC'", "ts = '2026-01-01'"),
        ("tn = TIMESTAMP_NTZ '2026-01-01 00:00:00.5'", "tn = '2026-01-01 00:00:00.500000000'"),
        ("g = 0.5", "g = CAST('0.5' AS FLOAT)"),
        ("x = X'ABC'", "x = CAST(X'0abc' AS BINARY)"),
        ("s = CAST(X'6127' AS STRING)", r"s = 'a\''"),
        ("ST.A = 1", "`st`.`a` = 1"),
        ("st.`b C` = 'x'", "st.`B c` = 'x'"),
        ("id = 1 OR id IN (2, 3) OR id = 1", "id IN (1, 2, 3)"),
        ("id != 1 AND s = 'a' AND id NOT IN (2)", "id NOT IN (1, 2) AND s = 'a'"),
        ("b", "b = TRUE"),
        ("b IS NOT TRUE", "NOT (b <=> TRUE)"),
        ("s = NULL", "NULL"),
        ("tn = TIMESTAMP '2026-01-01 00:00:00'", "tn = TIMESTAMP_NTZ '2026-01-01 00:00:00'"),
        ("ts = TIMESTAMP '2026-01-01 00:00:00'", "ts = '2026-01-01T00:00:00Z'"),
        ("ts = DATE '2026-01-01'", "ts = '2026-01-01'"),
        ("id < 1e1", "id < 10"),
        ("d < 1.5e-3", "d <= 0.00"),
        ("d = CAST(1.5 AS DOUBLE)", "d = 1.50"),
        ("id > -9223372036854775809", "id IS NOT NULL OR NULL"),
    ],
)
def test_texts_that_mean_the_same_are_the_same_tree(text: str, same: str) -> None:
    """Literals come to the type of their column without loss, or change the comparison."""
    assert parse_where(text, SCHEMA) == parse_where(same, SCHEMA)


def test_a_number_that_a_float_cannot_hold_is_compared_exactly() -> None:
    """0.1 is no 32-bit float; the nearest one is above it."""
    assert parse_where("g = 0.1", SCHEMA) == parse_where("g IS NULL AND NULL", SCHEMA)
    assert parse_where("g <= 0.1", SCHEMA) == parse_where("g < CAST('0.1' AS FLOAT)", SCHEMA)
    assert parse_where("g > 0.1", SCHEMA) == parse_where("g >= CAST('0.1' AS FLOAT)", SCHEMA)


@pytest.mark.parametrize(
    ("text", "part", "position"),
    [
        ("id + 1 = 2", "id + 1", 0),
        ("upper(s) = 'A'", "UPPER(s)", 0),
        ("id = 1 AND s RLIKE 'a'", "RLIKE", 11),
        ("id IN (SELECT 1)", "SELECT", 0),
        ("s LIKE 'a' ESCAPE '/'", "ESCAPE", 0),
        ("s = 'it''s'", r"write a quote inside text as \'", 4),
        ("day = to_date('2026-01-01', 'yyyy')", "TO_DATE", 6),
        ("id = CAST('5.5' AS INT)", "5.5 is not a valid INT", 10),
        ("t = CAST('300' AS TINYINT)", "300 is not a valid TINYINT", 9),
        ("d = CAST('1.555' AS DECIMAL(5,2))", "is not a valid DECIMAL", 9),
        ("d = CAST('1_0' AS INT)", "is not a valid INT", 9),
        ("tn = TIMESTAMP_NTZ '2026-01-01 00:00:00Z'", "is not a valid TIMESTAMP_NTZ", 19),
        ("ts = TIMESTAMP '2026-01-01 00:00:00.1234567'", "is not a valid TIMESTAMP", 15),
        ("x = 0x10", "10", 4),
        ("id =", "id =", 3),
        ("1 < id < 5", "1 < id", 0),
        ("id = t", "t", 5),
        ("1 = 1", "1", 0),
        ("5 BETWEEN id AND 9", "5", 0),
        ("id IN (1, t)", "t", 10),
        ("id = " + "9" * 40, "999", 5),
        ("id = -t", "-t", 6),
        ("CASE WHEN b THEN b END", "CASE", 10),
        ("nothing = 1", "nothing", None),
        ("st.b = 1", "st.b", None),
        ("id = 'x'", "bigint", None),
        ("s = 5", "write text in quotes", None),
        ("day = 'soon'", "day", None),
        ("day = '20260101'", "2026-01-31", None),
        ("ts = '2026-01-01 25:00:00'", "2026-01-31T12", None),
        ("tn = TIMESTAMP '2026-01-01 00:00:00Z'", "without a zone", None),
        ("id = 1; DROP TABLE x", "2 predicates", None),
        ("", "0 predicates", None),
    ],
)
def test_what_is_not_understood_is_refused_by_name(
    text: str, part: str, position: int | None
) -> None:
    """Never a silent wrong answer: the error names the part, the place and the remedy."""
    with pytest.raises(PredicateError) as caught:
        parse_where(text, SCHEMA)
    assert part in str(caught.value)
    assert caught.value.hint
    assert caught.value.facts.get("position") == position


@pytest.mark.parametrize("pattern", [r"a\\b", r"\\", r"%\\x"])
def test_a_pattern_with_a_stray_backslash_is_refused_as_in_spark(pattern: str) -> None:
    with pytest.raises(PredicateError, match="invalid escape"):
        parse_where(f"s LIKE '{pattern}'", SCHEMA)


def test_a_predicate_for_another_table_is_refused() -> None:
    predicate = parse_where("id = 1 AND st.a = 2", SCHEMA)
    assert parse_where(predicate, SCHEMA) is predicate
    with pytest.raises(PredicateError, match="st"):
        parse_where(predicate, parse_ddl("id bigint"))
    with pytest.raises(PredicateError, match="int64"):
        parse_where(predicate, parse_ddl("id int, st struct<a:int>"))
    with pytest.raises(PredicateError):
        parse_where(3, SCHEMA)  # type: ignore[arg-type]  # what it is about
    assert parse_where(None, SCHEMA) == TRUE


def test_negation_is_exact_and_its_own_inverse() -> None:
    predicate = parse_where("(id = 1 OR s IS NULL) AND (s LIKE 'a%' OR t < 1000)", SCHEMA)
    assert negate(negate(predicate)) == predicate
    assert negate(predicate) == parse_where(f"NOT ({to_sql(predicate)})", SCHEMA)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("s = 'plain'", "(`s` = 'plain')"),
        (r"s = 'it\'s'", "(`s` = CAST(X'69742773' AS STRING))"),
        ("s LIKE 'a%'", "(`s` LIKE 'a%')"),
        ("x > X'00ff'", "(`x` > X'00ff')"),
        ("day = DATE '2026-01-01'", "(`day` = CAST('2026-01-01' AS DATE))"),
        ("ts > '2026-01-01'", "(`ts` > CAST('2026-01-01T00:00:00.000000Z' AS TIMESTAMP_LTZ))"),
        ("f IN (0, 1)", None),
    ],
)
def test_spark_text_is_typed_and_quoted(text: str, written: str | None) -> None:
    """What a quote or a backslash means depends on the session; bytes do not."""
    found = to_sql(parse_where(text, SCHEMA))
    if written is None:
        assert "'0.0'" in found
        assert "'-0.0'" in found  # long lists are looked up by bits
    else:
        assert found == written


def test_text_for_spark_has_aliases_in_the_place_of_names() -> None:
    """What a name in backticks or ${ means depends on the session too."""
    schema = pa.schema([("${x}", pa.int64()), ("s", pa.struct([("a.b", pa.string())]))])
    predicate = parse_where("`${x}` = 1 AND s.`a.b` IN ('x') AND s IS NULL", schema)
    aliases = {("${x}",): "n0", ("s", "a.b"): "n1", ("s",): "n2"}
    assert to_sql(predicate, aliases) == "((n0 = 1) AND (n1 IN ('x')) AND (n2 IS NULL))"


def test_trees_hash_and_compare_by_value() -> None:
    one, other = (parse_where("s LIKE 'a%' AND id = 1", SCHEMA) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert isinstance(parse_where("s LIKE 'a'", SCHEMA), Like)
    assert isinstance(parse_where("st IS NULL", SCHEMA), IsNull)


def test_the_parser_is_imported_only_for_text() -> None:
    """Start-up must stay short."""
    code = "import sys, plait.expr; sys.exit('sqlglot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
