"""A group commit in which one process dies at each of its steps, and the others live on.

A step is a storage call or something that is sent. In place of the dead one another comes, as in
the Kafka sink. Then each record is in the table once, and nothing is left (INV-06, INV-09).
"""

from __future__ import annotations

import pytest

from plait import Table
from plait.services.verify.foreign import list_foreign
from plait.storage import open_store
from plait.timeline.pending import load_pending
from plait.txn.recovery import roll_back_failed
from tests.support.operations import ids
from tests.support.stream_steps import (
    APPLICATION,
    COORDINATOR,
    OTHER,
    STREAM_CASES,
    WRITER,
    StreamCase,
    dead_at,
    stream_steps,
)

LEAST_STEPS = 10


@pytest.mark.long(1)
@pytest.mark.parametrize("case", STREAM_CASES.values(), ids=STREAM_CASES.keys())
def test_others_go_on_wherever_one_dies(case: StreamCase) -> None:
    _, steps = stream_steps(case)
    assert len(steps) > LEAST_STEPS
    for nth in range(1, len(steps) + 1):
        actors = dead_at(case, nth)
        if case.who == COORDINATOR:
            actors.lead("d")
        for source, nonces in ((WRITER, "e"), (OTHER, "f")):
            if source == case.who or source not in actors.writers:
                actors.join(source, nonces)
        actors.finish()
        actors.leave()
        table = Table.open(actors.uri)
        assert ids(table) == case.table.after, steps[nth - 1]
        assert table.stream(APPLICATION).audit().problems == ()
        roll_back_failed(table._handle, reason="test", everything=True)
        table.maintenance.clean()
        assert table.check.verify(data=True).problems == ()
        assert load_pending(open_store(actors.uri)) == []
        assert list_foreign(table._handle) == (), steps[nth - 1]
