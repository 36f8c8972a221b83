"""Whether the table holds what the records say, and whether its own proofs hold."""

from __future__ import annotations

import numpy as np

from plait import Table
from plait.kafka.client import Clients
from plait.kafka.sources import SourceOffset, SourcePartition
from plait.stream.messages import position_offsets
from tests.processes.kafka.records import Records


def missing_records(table: Table, clients: Clients, topic: str, partitions: int) -> int:
    """Count the records of the topic that the table has no offset after."""
    stream = table.stream(topic)
    known = position_offsets(topic, stream.position)
    consumer = clients.consumer()
    try:
        ends = [clients.bounds(consumer, topic, number)[1] for number in range(partitions)]
    finally:
        consumer.close()
    there = [known.get(str(SourcePartition(topic, number)), "") for number in range(partitions)]
    return sum(
        end - (SourceOffset.parse(text).number if text else 0)
        for end, text in zip(ends, there, strict=True)
    )


def judge(table: Table, topic: str, records: Records) -> dict[str, object]:
    """Check everything; raise AssertionError saying what is wrong."""
    found = table.scan(["id", "seq"]).to_arrow()
    ids, seqs = (found[name].to_numpy() for name in ("id", "seq"))
    order = np.lexsort((seqs, ids))
    ids, seqs = ids[order], seqs[order]
    wanted, last = records.expected()
    twice = int(len(ids) - len(np.unique(ids)))
    assert not twice, f"{twice} rows are there twice: {ids[:-1][ids[:-1] == ids[1:]][:5]}"
    lost, strange = np.setdiff1d(wanted, ids), np.setdiff1d(ids, wanted)
    assert not len(lost), f"{len(lost)} rows are missing, of {len(wanted)}: {lost[:5]}"
    assert not len(strange), f"{len(strange)} rows were removed, and are there: {strange[:5]}"
    stale = ids[seqs != last]
    assert not len(stale), f"{len(stale)} rows are not the last ones of their keys: {stale[:5]}"
    audit = table.stream(topic).audit()
    problems = [each.message for each in audit.problems]
    assert not problems, f"stream audit: {problems[:3]}"
    assert audit.proven == len(audit.epochs), "an epoch has no digest of its rows"
    table.maintenance.rollback()
    for history in (False, True):
        report = table.check.verify(history=history)
        assert not report.problems, f"verify: {report.problems[:3]}"
    assert table.inspect.timeline().pending == (), "instants were left"
    return {"rows": len(ids), "epochs": len(audit.epochs), "version": table.version}
