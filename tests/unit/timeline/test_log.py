"""Slots: found in few reads, refused when they are not what their name says."""

from __future__ import annotations

import pytest

from plait.errors import CorruptMetadataError, InstantExpiredError
from plait.storage.memory import MemoryStore
from plait.timeline import codec, paths
from plait.timeline.log import INLINE_ROWS_MAX, Timeline
from tests.support.protocol import client, create, listed, memory, upsert


def taken(head: int) -> MemoryStore:
    store = memory()
    for version in range(head + 1):
        store.put(paths.slot(version), b"?")
    return store


def test_a_free_slot_is_none_and_an_emptied_one_is_not() -> None:
    """INV-01: an emptied slot keeps its name."""
    store = taken(2)
    timeline = Timeline(store)
    assert timeline.find(3) is None
    store.put(paths.slot(1), b"")
    assert timeline.find_slot(1) == b""
    with pytest.raises(CorruptMetadataError, match="no archive contains its decision") as caught:
        timeline.find(1)
    assert caught.value.path == paths.slot(1)
    with pytest.raises(InstantExpiredError) as expired:
        list(timeline.load_active(0, limit=9))
    assert expired.value.version == 1


def test_decisions_are_loaded_up_to_the_head_or_the_limit() -> None:
    """INV-02."""
    store = memory()
    create(store)
    handle = client(store)
    for _ in range(5):
        upsert(handle)
    timeline = Timeline(store)
    assert [d.version for d in timeline.load_after(1, limit=100)] == [2, 3, 4, 5]
    assert [d.version for d in timeline.load_after(1, limit=2)] == [2, 3]
    assert list(timeline.load_after(5, limit=2)) == []


def test_a_huge_slot_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata is untrusted: sizes are checked first."""
    monkeypatch.setattr(codec, "SLOT_BYTES_MAX", 1_000)
    store = memory()
    store.put(paths.slot(0), b"x" * 1_001)
    with pytest.raises(CorruptMetadataError):
        Timeline(store).find(0)


def test_large_sections_go_to_manifests_and_come_back_or_are_named() -> None:
    """INV-01, INV-04."""
    store = memory()
    create(store, buckets=INLINE_ROWS_MAX + 1)
    upsert(client(store), *range(INLINE_ROWS_MAX + 1))
    manifests = listed(store, paths.MANIFESTS)
    assert len(manifests) == 2
    assert len(store.find(paths.slot(1)) or b"") < 3_000
    decision = Timeline(store).find(1)
    assert decision is not None
    assert decision.changes.added.num_rows == INLINE_ROWS_MAX + 1
    assert client(store).cache.snapshot().files.num_rows == INLINE_ROWS_MAX + 1
    for body in (b"", b"rubbish", b"PAR1" * 100):
        store.put(manifests[0], body)
        with pytest.raises(CorruptMetadataError) as caught:
            client(store).cache.refresh()
        assert caught.value.path == manifests[0]
