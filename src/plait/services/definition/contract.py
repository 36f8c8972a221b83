"""Change the contract safely: clients under different contracts must not both write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from plait.definition.table_def import TableDef
from plait.errors import ContractError, OptionError
from plait.locks import arbiter_of, open_lock, resolve_lock
from plait.model.decision import CommitResult
from plait.storage import open_store
from plait.txn.recovery import list_pending
from plait.txn.table_decisions import change_table
from plait.txn.table_handle import TableHandle, open_handle

_POLL_S = 0.2


def change_contract(
    handle: TableHandle, values: Mapping[str, str], *, wait_s: float = 0
) -> CommitResult:
    """Change parts of the contract in one decision, while no other writer is live.

    A writer that began before and was not seen is refused at publish (INV-12).

    Args:
        handle: the table.
        values: one or more of ``concurrency``, ``lock`` and ``failed_writes``.
        wait_s: how long to wait for live writers to end; 0 raises at once.

    Raises:
        OptionError: the contract is invalid, or the store does not support the lock.
        ContractError: other writers are live. Nothing was written.
    """
    known = handle.cache.refresh().table.contract
    wanted = known.with_parts(values)
    wanted.check()
    parts = {**values, "lock": resolve_lock(wanted.lock, handle.store)}
    _require_same_arbiter(known.lock, parts["lock"])
    open_lock(parts["lock"], handle.store, handle.ports, handle.consent)
    _require_alone(handle, wait_s)

    def changed(table: TableDef) -> TableDef:
        contract = table.contract.with_parts(parts)
        contract.check()  # somebody else may have changed the other parts meanwhile
        _require_same_arbiter(table.contract.lock, contract.lock)
        return replace(table, contract=contract)

    return change_table(handle, changed)


def reopen(handle: TableHandle, *given: str) -> TableHandle:
    """Return the same client under the contract that the table has now.

    Args:
        handle: the client.
        given: addresses that its caller has just put into the table's definition.
    """
    store, consent = open_store(handle.store.address), handle.consent.also(*given)
    return replace(open_handle(store, handle.ports, consent), upkeep=handle.upkeep)


def _require_alone(handle: TableHandle, wait_s: float) -> None:
    deadline = handle.ports.clock.monotonic() + wait_s
    while live := [entry for entry in list_pending(handle) if entry.alive]:
        if handle.ports.clock.monotonic() >= deadline:
            first = live[0]
            message = (
                f"{len(live)} other writers are alive, such as {first.instant} "
                f"(process {first.pid} on {first.host})"
            )
            hint = "wait with wait_s, or roll back dead writers with `tablectl rollback --failed`"
            raise ContractError(message, hint=hint, live=[str(e.instant) for e in live])
        handle.ports.clock.sleep(_POLL_S)


def _require_same_arbiter(before: str, after: str) -> None:
    """Refuse to change who decides slots: both could grant the same slot (INV-02)."""
    if arbiter_of(before) != arbiter_of(after):
        message = f"this table's slots are decided with {before!r}, not with {after!r}"
        hint = "copy the rows to a new table with that lock"
        raise OptionError(message, hint=hint, key="lock", value=after)
