"""A restore with replay lets everything be applied again that is undone then (INV-16)."""

from __future__ import annotations

import pyarrow as pa

from plait import Table


def test_a_restore_with_replay_frees_what_an_earlier_restore_undid() -> None:
    """The operator's word holds for commit ids as for streams."""
    table = Table.create("memory://restore-replays-all", "id bigint, x double", record_key=["id"])
    table.upsert(pa.table({"id": [1], "x": [1.0]}), commit_id="first")
    table.versions.undo()
    plan = table.versions.restore(version=0, dry_run=True)
    assert plan.commit_ids == ("first",)
    table.versions.restore(plan, replay=True)
    assert table.upsert(pa.table({"id": [1], "x": [2.0]}), commit_id="first").version == 4
