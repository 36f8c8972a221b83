"""Arguments of a wrong type are refused with a sentence, before anything is written."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from plait import Table, TableError
from plait.replicate.address import parse_sink
from tests.support.memory import forget

URI = "memory://wrong-types"
CALLS: dict[str, Callable[[Table], object]] = {
    "a path": lambda t: t.alter().add(5, "int").commit(),  # type: ignore[arg-type]
    "a name": lambda t: t.alter().rename("v", None).commit(),  # type: ignore[arg-type]
    "a place": lambda t: t.alter().move("v", after=5).commit(),  # type: ignore[arg-type]
    "a comment": lambda t: t.alter().comment("v", 5).commit(),  # type: ignore[arg-type]
    "a check": lambda t: t.alter().add_check("c", 5).commit(),  # type: ignore[arg-type]
    "a time to live": lambda t: t.repush(expire=3),  # type: ignore[arg-type]
    "a sink": lambda t: t.add_replica(4),  # type: ignore[arg-type]
    "another table": lambda t: t.compare(4),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", CALLS)
def test_a_value_of_a_wrong_type_is_refused_and_nothing_is_written(what: str) -> None:
    forget(URI)
    table = Table.create(URI, "id bigint, v int", record_key="id")
    with pytest.raises(TableError):
        CALLS[what](table)
    assert Table.open(URI).version == 0


@pytest.mark.parametrize("name", ["user", "username", "UID"])
def test_a_user_in_the_parameters_of_an_address_is_not_kept_in_a_definition(name: str) -> None:
    with pytest.raises(TableError, match=rf"{name}=\*\*\*"):
        parse_sink(f"db=postgresql://host/db?{name}=me#rows")
