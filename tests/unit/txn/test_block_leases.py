"""Reads of a transaction hold leases, as every other read does (INV-05)."""

from __future__ import annotations

import contextlib
import gc

import pytest

from plait import Table
from plait.txn.read_pin import load_read_pins
from tests.support.build import LITTLE, make, rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ended", "table_type"),
    [("committed", "cow"), ("rolled back", "mor"), ("applied before", "cow")],
)
def test_a_scan_of_a_transaction_stays_readable_after_its_block(
    ended: str, table_type: str
) -> None:
    """INV-05: like every other scan it holds a lease, and so does a reader made of it."""
    table = _leased(table_type)
    found = table.scan().to_arrow().sort_by("id")
    if ended == "applied before":
        table.upsert(rows(9, v=9), commit_id="again")
        found = table.scan().to_arrow().sort_by("id")
    with contextlib.suppress(ZeroDivisionError), table.transaction(commit_id="again") as tx:
        scan, reader = tx.scan(), tx.scan(columns=["id"]).to_reader()
        if ended == "rolled back":
            raise ZeroDivisionError
        tx.delete(where="id = 1")
    for number in range(3):
        table.upsert(rows(1, 2, 3, 9, v=number))
        table.maintenance.clean()
    assert scan.to_arrow().sort_by("id") == found
    assert sorted(reader.read_all()["id"].to_pylist()) == found["id"].to_pylist()
    del scan, reader
    gc.collect()
    assert load_read_pins(table._handle) == []
    assert table.maintenance.clean().deleted


def test_a_transaction_that_reads_twice_takes_one_lease() -> None:
    table = _leased("cow")
    with table.transaction() as tx:
        scans = [tx.scan(), tx.scan()]
        assert len(load_read_pins(table._handle)) == 1
    assert len(load_read_pins(table._handle)) == 1
    scans.clear()
    gc.collect()
    assert load_read_pins(table._handle) == []


def _leased(table_type: str) -> Table:
    return make(table_type=table_type, properties=LITTLE, upsert=rows(1, 2, 3, v=0))
