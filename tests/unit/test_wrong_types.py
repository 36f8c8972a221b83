"""Arguments of a wrong type are refused with a sentence, before anything is written."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from plait import Delete, OptionError, Table, TableError
from plait.write.sink_address import parse_sink
from tests.support.memory import forget

URI = "memory://wrong-types"
CALLS: dict[str, Callable[[Table], object]] = {
    "a path": lambda t: t.alter.columns().add(5, "int").commit(),  # type: ignore[arg-type]
    "a name": lambda t: t.alter.columns().rename("v", None).commit(),  # type: ignore[arg-type]
    "a place": lambda t: t.alter.columns().move("v", after=5).commit(),  # type: ignore[arg-type]
    "a comment": lambda t: t.alter.columns().comment("v", 5).commit(),  # type: ignore[arg-type]
    "a check": lambda t: t.alter.columns().add_check("c", 5).commit(),  # type: ignore[arg-type]
    "a time to live": lambda t: t.layout.repush(expire=3),  # type: ignore[arg-type]
    "a sink": lambda t: t.replicas.add(4),  # type: ignore[arg-type]
    "another table": lambda t: t.inspect.compare(4),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", CALLS)
def test_a_value_of_a_wrong_type_is_refused_and_nothing_is_written(what: str) -> None:
    forget(URI)
    table = Table.create(URI, "id bigint, v int", record_key="id")
    with pytest.raises(TableError):
        CALLS[what](table)
    assert Table.open(URI).version == 0


COMMIT_IDS: dict[str, Callable[[Table, str], object]] = {
    "a write": lambda t, name: t.delete(where="id = 1", commit_id=name),
    "an update": lambda t, name: t.update({"v": 1}, commit_id=name),
    "a merge": lambda t, name: t.merge(t.scan().to_arrow(), matched=Delete(), commit_id=name),
    "a writer": lambda t, name: t.writer("upsert", commit_id=name),
    "a transaction": lambda t, name: t.transaction(commit_id=name).__enter__(),
    "a repush": lambda t, name: t.layout.repush(buckets=3, commit_id=name),
}


@pytest.mark.parametrize("name", ["", 5, b"x", True], ids=repr)
@pytest.mark.parametrize("what", COMMIT_IDS)
def test_a_commit_id_that_names_nothing_is_refused_and_nothing_is_written(
    what: str, name: str
) -> None:
    """All writes that have an empty one, of a variable that is not set, would count as one."""
    forget(URI)
    table = Table.create(URI, "id bigint, v int", record_key="id")
    with pytest.raises(OptionError, match="commit_id"):
        COMMIT_IDS[what](table, name)
    assert Table.open(URI).version == 0


@pytest.mark.parametrize("name", ["user", "username", "UID"])
def test_a_user_in_the_parameters_of_an_address_is_not_kept_in_a_definition(name: str) -> None:
    with pytest.raises(TableError, match=rf"{name}=\*\*\*"):
        parse_sink(f"db=postgresql://host/db?{name}=me#rows")
