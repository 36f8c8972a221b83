"""What repair takes from the archive, and from where it takes the archive (RFC 0018, 4.8)."""

from __future__ import annotations

import pytest

from plait.services.verify.repair import Finding, plan_repair, repair
from plait.storage.memory import MemoryStore
from plait.storage.port import Store
from plait.timeline import paths
from tests.support.protocol import client
from tests.unit.services.test_archive import archived, copied, damage, slots, table


def findings(store: Store, backup: MemoryStore | None = None) -> list[Finding]:
    """Return what is wrong with the metadata: the data files here are no Parquet."""
    plan = plan_repair(client(store), backup)
    return [each for each in plan.findings if each.kind in ("slot", "archive")]


@pytest.mark.parametrize("kind", ["missing", "flip"])
@pytest.mark.parametrize("version", [3, 16])
def test_a_lost_slot_is_taken_from_the_archive(kind: str, version: int) -> None:
    """INV-01: also one that was emptied, since its name must be there."""
    store = table()
    before = slots(store)
    archived(store)
    path = paths.slot(version)
    store.delete([path]) if kind == "missing" else store.put(path, b"damaged")
    report = repair(client(store), plan_repair(client(store)))
    assert [finding.id for finding in report.mended] == [f"slot:{path}"]
    assert findings(store) == []
    assert store.find(path) == before[version]


def test_a_file_of_the_archive_is_taken_from_a_copy_and_from_nowhere_else() -> None:
    store = table()
    archived(store)
    backup = copied(store)
    path = damage(store, "flip")
    (finding,) = findings(store)
    assert (finding.id, finding.answer) == (f"archive:{path}", "lost")
    other = copied(backup)
    other.put(path, b"not the same")
    assert findings(store, other)[0].answer == "lost"
    repair(client(store), plan_repair(client(store), backup), backup)
    assert findings(store) == []
    assert store.find(path) == backup.find(path)
