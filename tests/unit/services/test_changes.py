"""What a reader of changes pins, it lets go when it cannot read."""

from __future__ import annotations

import pytest

from plait.errors import InstantNotFoundError
from plait.queries.pins import pin_changes, pin_rows
from plait.storage.memory import MemoryStore
from plait.timeline import paths
from tests.support.protocol import client, listed, upsert


def test_rows_of_a_version_are_pinned_until_the_lease_is_released(store: MemoryStore) -> None:
    """INV-05."""
    upsert(client(store))
    window, lease = pin_rows(client(store), 1)
    assert window.files.num_rows == 1
    assert len(listed(store, paths.LEASES)) == 1
    lease.release()
    assert listed(store, paths.LEASES) == []


def test_a_pin_that_failed_leaves_no_lease(store: MemoryStore) -> None:
    """It would hold up cleaning for as long as the process lives."""
    with pytest.raises(InstantNotFoundError):
        pin_rows(client(store), 99)
    with pytest.raises(InstantNotFoundError):
        pin_changes(client(store), 0, 99)
    assert listed(store, paths.LEASES) == []
