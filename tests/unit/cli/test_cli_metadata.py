"""metadata rebuild on a real table."""

from __future__ import annotations

import pyarrow as pa

from plait import Table


def test_metadata_rebuild_shows_what_it_then_does_where_bounds_are_on(tablectl, tmp_path):
    uri = str(tmp_path / "t")
    table = Table.create(uri, "id bigint, x double", properties={"metadata.statistics": "off"})
    for number in range(2):
        table.append(pa.table({"id": [number], "x": [1.5]}))
    refused = tablectl("metadata", "rebuild", uri, "--json")
    assert refused.code == 2
    assert "metadata.statistics" in refused.err
    assert tablectl("set", uri, "metadata.statistics=on").code == 0
    Table.open(uri).append(pa.table({"id": [9], "x": [1.5]}))
    planned = tablectl("metadata", "rebuild", uri, "--dry-run", "--json").data
    assert (planned["plan"]["files"], planned["plan"]["missing"]) == (3, 2)
    assert (planned["dry_run"], planned["report"]) == (True, None)
    done = tablectl("metadata", "rebuild", uri, "--json").data
    assert done["plan"] == planned["plan"]
    assert (done["report"]["rebuilt"], done["report"]["unread"]) == (2, [])
    again = tablectl("metadata", "rebuild", uri, "--json").data
    assert (again["plan"]["missing"], again["report"]) == (0, None)
    assert Table.open(uri).scan(where="id = 9").plan.pruned_by_bounds == 2
