"""Predicates in metadata: written whole, read with suspicion."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plait.errors import CorruptMetadataError
from plait.expr import from_json, parse_ddl, parse_where, to_json
from plait.expr.tree import LEAVES_MAX

SCHEMA = parse_ddl("id bigint, s string, f float, m array<int>, st struct<a:int>")


@pytest.mark.parametrize(
    "text",
    [
        "id = 1 AND (s LIKE 'a%' OR st.a IS NOT NULL)",
        "s NOT IN ('a', 'b', NULL)",
        "id = 2.5 OR f > CAST('0.1' AS FLOAT)",
        "m IS NULL AND TRUE",
        "NULL",
    ],
)
def test_a_predicate_comes_back_from_json(text: str) -> None:
    predicate = parse_where(text, SCHEMA)
    assert from_json(json.loads(json.dumps(to_json(predicate))), SCHEMA) == predicate


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {"always": True}
    for _ in range(depth):
        value = {"and": [value]}
    return value


def wide() -> dict[str, Any]:
    leaf = {"null": ["id"], "negated": False}
    return {"or": [{"and": [leaf] * 100}] * (LEAVES_MAX // 100 + 1)}


@pytest.mark.parametrize(
    "value",
    [
        None,
        3,
        "id = 1",
        {},
        {"and": []},
        {"or": {}},
        {"always": 1},
        {"compare": ["id"], "op": "~", "value": "1"},
        {"compare": ["id"], "op": ["="], "value": "1"},
        {"compare": ["id"], "op": "=", "value": 1},
        {"compare": ["id"], "op": "=", "value": "01"},
        {"compare": ["id"], "op": "=", "value": "9223372036854775808"},
        {"compare": ["m"], "op": "=", "value": "1"},
        {"compare": ["ID"], "op": "=", "value": "1"},
        {"compare": ["nothing"], "op": "=", "value": "1"},
        {"in": ["id"], "values": [], "negated": False},
        {"in": ["id"], "values": "12", "negated": False},
        {"in": ["id"], "values": ["1"], "negated": 0},
        {"in": ["id"], "values": ["1"]},
        {"null": 1, "negated": False},
        {"null": [], "negated": False},
        {"null": [1], "negated": False},
        {"like": ["id"], "pattern": "1", "negated": False},
        {"like": ["s"], "pattern": 1, "negated": False},
        {"like": ["s"], "pattern": "\\", "negated": False},
        {"fixed": ["id"], "value": True},
        {"substrait": "AAAA", "names": ["id"], "negated": False},
        nested(200),
        nested(50_000),
        wide(),
    ],
    ids=lambda value: str(type(value))[:20],
)
def test_json_that_is_no_predicate_is_refused(value: object) -> None:
    """Metadata is untrusted."""
    with pytest.raises(CorruptMetadataError) as caught:
        from_json(value, SCHEMA)
    assert len(str(caught.value)) < 500
