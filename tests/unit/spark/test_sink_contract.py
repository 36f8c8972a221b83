"""A write through the data source goes through several processes, under one contract (INV-12)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from plait import Table
from plait.errors import ContractError
from plait.spark.sink import Job
from plait.timeline.pending import load_pending
from plait.txn.table_decisions import change_table
from plait.write.request import write_request


def test_it_is_not_committed_after_the_contract_changed(tmp_path: Path) -> None:
    """Its driver opens the table anew to commit: what counts is how it was opened to begin."""
    uri = str(tmp_path / "t")
    table = Table.create(uri, "id bigint")
    order = write_request("append", table._handle.cache.known().table.spec)
    job = Job.prepare(table, order, StructType([StructField("id", LongType())]))
    change_table(
        table._handle, lambda t: replace(t, contract=replace(t.contract, failed_writes="lazy"))
    )
    job.commit([])  # the same contract again
    later = Job.prepare(table, order, StructType([StructField("id", LongType())]))
    change_table(table._handle, lambda t: replace(t, contract=replace(t.contract, lock="none")))
    with pytest.raises(ContractError):
        later.commit([])
    assert Table.open(uri).inspect.history(1)[0].operation == "rollback"


def test_it_outlives_the_process_that_began_it(tmp_path: Path) -> None:
    """INV-06: its processes come and go, and between its tasks nobody sends a heartbeat."""
    table = Table.create(str(tmp_path / "t"), "id bigint", properties={"heartbeat.timeout": "60s"})
    request = write_request("append", table._handle.cache.known().table.spec)
    job = Job.prepare(table, request, StructType([StructField("id", LongType())]))
    job._request(table._handle.store)
    (entry,) = load_pending(table._handle.store)
    assert entry.process == "", "its end would be the end of the write"
    assert entry.timeout_s == 600
    job.abort()
    assert load_pending(table._handle.store) == []
