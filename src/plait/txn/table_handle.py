"""What a transaction works on: one table as one client sees it."""

from __future__ import annotations

import logging
import os
import platform
from dataclasses import dataclass, field, replace
from typing import Protocol

from plait.definition.table_def import dropped_error
from plait.errors import CapabilityMissingError, CorruptMetadataError, OptionError
from plait.index.cache import IndexCache
from plait.locks import open_lock
from plait.locks.identity import require_identity
from plait.locks.port import ExternalCommitLock, LockProvider, ServedLock
from plait.model.consent import NOTHING, Consent
from plait.model.contract import Contract
from plait.model.decision import Decision
from plait.model.instant import Instant, after, time_ms
from plait.ports import Ports
from plait.state.cache import StateCache
from plait.state.state import TableState
from plait.storage.port import Store
from plait.timeline import paths
from plait.timeline.external_commits import ExternalCommitStore, plain_store
from plait.txn.liveness_cache import HeartbeatCache, SleepGuard
from plait.txn.refusal import contract_changed

_log = logging.getLogger(__name__)


class Upkeep(Protocol):
    """What a client does after a decision of its own: a port, which ``Table`` connects."""

    def __call__(self, handle: TableHandle, decision: Decision | None) -> None:
        """Do the upkeep that a decision made due. Raises nothing: the decision stands.

        ``decision``: None for the one that created the table.
        """
        ...


@dataclass(frozen=True, slots=True)
class TableHandle:
    """Storage, what is known of the table, its lock, and the ports."""

    store: Store
    ports: Ports
    cache: StateCache
    lock: LockProvider
    contract: Contract | None = None
    """The contract under which this client was opened; None accepts whatever the table has."""
    upkeep: Upkeep | None = None
    """Called after each decision of this client; None: the client does no upkeep."""
    consent: Consent = NOTHING
    """The places outside of the table that may be connected with, if its metadata names them."""
    heartbeat_cache: HeartbeatCache = field(default_factory=HeartbeatCache)
    sleep_guard: SleepGuard = field(default_factory=SleepGuard)
    index_cache: IndexCache = field(default_factory=IndexCache)
    """The parts of the record index that this client has read."""

    @property
    def identity(self) -> str:
        """Return the table's identity, which never changes; a copy of the table has the same.

        Raises:
            CorruptMetadataError: ``table.json`` is missing or damaged.
            StorageError: it was not read before, and cannot be read now.
        """
        return self.cache.identity or require_identity(self.store)

    @property
    def plain_store(self) -> Store:
        """The store itself, also where a service decides the table's slots."""
        return plain_store(self.store)

    def require_same_table(self) -> None:
        """Refuse to go on where the table was deleted, or another one is in its place.

        Raises:
            TableNotFoundError: the table is not there any more.
            CorruptMetadataError: it is damaged.
            StorageError: the store does not answer.
        """
        self.cache.require_same_table(self.cache.known())

    def new_instant(self, known: TableState) -> Instant:
        """Return an instant later than every one that is known: ``max(now, newest + 1)``.

        Raises:
            ClockUnavailableError: the store does not tell its time.
        """
        newest_ms, where = time_ms(known.newest_time), paths.slot(known.version)
        ms = after(self.store.now_ms(), newest_ms, where=where)
        return Instant.at(ms, self.ports.ids.nonce())

    def require_contract(self, found: Contract) -> None:
        """Refuse to write under another contract than this client was opened under (INV-12).

        Raises:
            ContractError: the table has another contract now.
            TableDroppedError: it was dropped.
        """
        if self.contract is None or self.contract == found:
            return
        if found.dropped:
            raise dropped_error(self.store.address.uri, found.dropped)
        raise contract_changed(self.contract, found)

    def require_lock_consent(self) -> None:
        """Raise ConsentError where the contract names servers that the caller did not allow."""
        if isinstance(self.lock, ServedLock):
            self.lock.require_consent()

    def keep_up(self, decision: Decision | None = None) -> None:
        """Do the upkeep that a decision of this client made due; it raises nothing.

        ``decision``: None for the one that created the table.
        """
        if self.upkeep is not None and self.cache.known().table.has_upkeep:
            self.upkeep(self, decision)

    def under_any_contract(self) -> TableHandle:
        """Return this client without its contract, to end what it began itself.

        A client whose contract is over may still take its own attempt back: that changes no row.
        """
        return replace(self, contract=None)


@dataclass(slots=True)
class OpenTable:
    """An open table, which a ``Table`` and its namespaces share.

    A handle never changes. Where a client changes the contract or the sinks of its table, it goes
    on with another handle, and every namespace that was taken before must go on with that one too.
    """

    handle: TableHandle


class Namespace:
    """Methods of an open table."""

    def __init__(self, opened: OpenTable) -> None:
        self._opened = opened

    @property
    def _handle(self) -> TableHandle:
        return self._opened.handle


def require_plan(kind: type, plan: object, /, *, dry_run: bool, **named: object) -> None:
    """Refuse what is no plan, and a plan with arguments that it has answered already.

    Args:
        kind: the class of the plan.
        plan: what the caller passed first; None for nothing.
        dry_run: whether the caller asked for a plan.
        named: what else says what to plan, as the caller gave it.

    Raises:
        OptionError: it is another object, or something is said twice.
    """
    if plan is None:
        return
    if not isinstance(plan, kind):
        message = f"the first argument is a {kind.__name__}, not {plan!r:.100}"
        hint = "call it with dry_run=True for a plan"
        if named:
            hint = f"pass {' or '.join(f'{name}=' for name in named)} by name"
        raise OptionError(message, hint=hint, key="plan", value=str(plan)[:100])
    given = [name for name, value in named.items() if _is_given(value)]
    if dry_run:
        given.append("dry_run")
    if given:
        message = f"pass either a plan or {given[0]}"
        raise OptionError(message, hint="the plan says what is done", key="plan", value="")


def _is_given(value: object) -> bool:
    """Tell an argument from its default; 0 is a version, and predicates cannot be compared."""
    return value is not None and value is not False and not (isinstance(value, tuple) and not value)


def open_handle(
    store: Store, ports: Ports, consent: Consent = NOTHING, *, dropped: bool = False
) -> TableHandle:
    """Open a table by what its contract says: the lock, and who decides its slots.

    ``dropped``: open one that was dropped, too.

    Raises:
        TableNotFoundError: there is none.
        TableDroppedError: it was dropped.
        UnsupportedFeatureError: a newer Plait wrote it.
        CorruptMetadataError: it is damaged, and no version of it can be read. If versions below
            the damage can be, it opens, and each look at the head raises this.
        ConsentError: servers decide its slots, and the caller did not allow them.
    """
    cache = StateCache(store, ports)
    try:
        contract = cache.refresh().table.contract
    except CorruptMetadataError as error:
        if cache.seen is None:
            raise
        contract = cache.seen.table.contract
        _log.info("only versions up to %d can be read: %s", cache.seen.version, error)
    if contract.dropped and not dropped:
        raise dropped_error(store.address.uri, contract.dropped)
    cache.identity = require_identity(store)
    handle = make_handle(store, ports, contract.lock, cache, consent=consent)
    return replace(handle, contract=contract)


def make_handle(
    store: Store,
    ports: Ports,
    lock: str,
    cache: StateCache | None = None,
    *,
    consent: Consent = NOTHING,
) -> TableHandle:
    """Put a table's handle together; nothing is read or taken yet.

    Raises:
        ConsentError: servers decide the table's slots, and the caller did not allow them.
    """
    provider = open_lock(lock, store, ports, consent)
    arbiter = provider.arbiter if isinstance(provider, ExternalCommitLock) else None
    if arbiter is not None:
        store = ExternalCommitStore(store, arbiter)
        known, cache = cache, StateCache(store, ports)
        cache.identity = None if known is None else known.identity
    return TableHandle(store, ports, cache or StateCache(store, ports), provider, consent=consent)


def client() -> dict[str, object]:
    """Tell who this process is, for the timeline."""
    return {"host": platform.node(), "pid": os.getpid()}


def require_slots(handle: TableHandle) -> None:
    """Refuse to write where no atomic slot can be had; raise CapabilityMissingError."""
    require_atomic(handle.store, "use a local disk, S3, or lock='zookeeper://...'")


def require_atomic(store: Store, hint: str = "publish from a local disk or S3") -> None:
    """Refuse a store that cannot decide who is first; raise CapabilityMissingError."""
    if not store.capabilities.put_if_absent:
        uri = store.address.uri
        message = f"the store of {uri} has no atomic put-if-absent"
        hint = f"{hint}; docs: concepts/storage"
        raise CapabilityMissingError(message, hint=hint, capability="put_if_absent", uri=uri)
