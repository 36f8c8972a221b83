"""The contract of a table: agreed at open, changed only while nobody else writes (INV-12)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from plait import Table
from plait.errors import ContractError, OptionError

ROWS = pa.table({"id": [1]})


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.create(str(tmp_path), "id bigint", record_key=["id"])


def contract(table: Table) -> dict[str, object]:
    found = table.inspect.describe()["contract"]
    assert isinstance(found, dict)
    return found


def test_a_client_that_expects_another_contract_is_refused_at_open(
    table: Table, tmp_path: Path
) -> None:
    """INV-12."""
    Table.open(str(tmp_path), contract={"lock": "file", "concurrency": "multi_writer"})
    with pytest.raises(ContractError, match="lock"):
        Table.open(str(tmp_path), contract={"lock": "none"})
    with pytest.raises(OptionError, match="is unknown"):
        Table.open(str(tmp_path), contract={"locks": "none"})


def test_it_is_changed_in_one_decision_and_not_while_another_writer_is_live(table: Table) -> None:
    """INV-12: refused at once, or after waiting; nothing is written.

    INV-02: who decides the slots never changes, or two could give one slot away.
    """
    with table.writer("upsert") as writer:
        writer.write(ROWS)
        with pytest.raises(ContractError, match="live") as caught:
            table.alter.contract(lock="none")
        assert caught.value.live == [str(writer.instant)]
        with pytest.raises(ContractError):
            table.alter.contract(lock="none", wait_s=0.1)
        with pytest.raises(OptionError) as refused:  # at once, and not after waiting
            table.alter.contract(lock="zookeeper://127.0.0.1:1/plait?slots=lent")
        assert refused.value.key == "lock"
    assert contract(table)["lock"] == "file"
    result = table.alter.contract(lock="none", wait_s=5)
    assert contract(table)["lock"] == "none"
    assert result.version == table.version == 2
    table.upsert(ROWS)  # by the client that made the change


def test_a_client_that_was_opened_before_the_change_cannot_write(
    table: Table, tmp_path: Path
) -> None:
    """INV-12: also one that begins only afterwards; it holds the old lock."""
    old = Table.open(str(tmp_path))
    table.alter.contract(lock="none")
    with pytest.raises(ContractError, match="opened"):
        old.upsert(ROWS)
    assert not table.inspect.timeline().pending
    Table.open(str(tmp_path)).upsert(ROWS)
    assert table.scan().count() == 1


def test_a_contract_that_cannot_hold_is_refused_before_anything_is_written(table: Table) -> None:
    for parts in (
        {"failed_writes": "eager"},
        {"lock": "nonsense"},
        {"concurrency": "many"},
    ):
        with pytest.raises(OptionError):
            table.alter.contract(**parts)  # type: ignore[arg-type]  # by name
    with pytest.raises(TypeError):
        table.alter.contract(isolation="snapshot")  # type: ignore[call-arg]  # no part of it
    assert table.version == 0
