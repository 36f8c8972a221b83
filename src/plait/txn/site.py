"""What a transaction works on: one table as one client sees it."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field, replace

from plait.errors import CapabilityMissingError
from plait.locks import open_lock
from plait.locks.port import LockProvider, SlotLender
from plait.model.contract import Contract
from plait.model.instant import Instant, time_ms
from plait.ports import Ports
from plait.state.cache import StateCache
from plait.state.state import State
from plait.storage.port import Store
from plait.timeline.lent import LentStore
from plait.txn.sightings import Sightings


@dataclass(frozen=True, slots=True)
class Site:
    """Storage, what is known of the table, its lock, and the ports."""

    store: Store
    ports: Ports
    cache: StateCache
    lock: LockProvider
    contract: Contract | None = None
    """What this client was opened under; None: whatever the table says."""
    sightings: Sightings = field(default_factory=Sightings)

    def new_instant(self, known: State) -> Instant:
        """Give an instant later than every one that is known: ``max(now, newest + 1)``."""
        ms = max(self.store.now_ms(), time_ms(known.newest_time) + 1)
        return Instant.at(ms, self.ports.ids.nonce())


def open_site(store: Store, ports: Ports) -> Site:
    """Open a table by what its contract says: the lock, and who decides its slots.

    Raises:
        TableNotFoundError: there is none.
        UnsupportedFeatureError: a newer Plait wrote it.
    """
    cache = StateCache(store, ports)
    contract = cache.refresh().table.contract
    return replace(make_site(store, ports, contract.lock, cache), contract=contract)


def make_site(store: Store, ports: Ports, lock: str, cache: StateCache | None = None) -> Site:
    """Put a table's site together; nothing is read or taken yet."""
    provider = open_lock(lock, store, ports)
    arbiter = provider.arbiter if isinstance(provider, SlotLender) else None
    if arbiter is not None:
        store, cache = LentStore(store, arbiter), None
    return Site(store, ports, cache or StateCache(store, ports), provider)


def client() -> dict[str, object]:
    """Tell who this process is, for the timeline."""
    return {"host": platform.node(), "pid": os.getpid()}


def require_slots(site: Site) -> None:
    """Refuse to write where no atomic slot can be had; raise CapabilityMissingError."""
    if not site.store.capabilities.put_if_absent:
        uri = site.store.spec.uri
        message = f"the store of {uri} has no atomic put-if-absent"
        hint = "use a local disk, S3, or lock='zookeeper://...'; docs: concepts/storage"
        raise CapabilityMissingError(message, hint=hint, capability="put_if_absent", uri=uri)
