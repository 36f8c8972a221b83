"""Changes of what a table is, its rows aside: one decision, whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from plait.errors import InvariantError
from plait.model.decision import CommitResult, Draft
from plait.model.instant import Action, Operation
from plait.state.state import TableDef, TableState
from plait.txn.service import publish_service
from plait.txn.table_handle import TableHandle, client


def set_properties(handle: TableHandle, values: Mapping[str, object]) -> CommitResult:
    """Set options; those not named stay as they are.

    Raises:
        OptionError: a key or value that is not known; nothing was written.
    """

    def changed(table: TableDef) -> TableDef:
        return replace(table, options=table.options.merged(values))

    return change_table(handle, changed)


def change_table(handle: TableHandle, change: Callable[[TableDef], TableDef]) -> CommitResult:
    """Publish a change of the definition; it is computed anew from each head that is met."""

    def draft(state: TableState) -> Draft:
        return Draft(
            instant=handle.new_instant(state),
            action=Action.PROPERTY,
            operation=Operation.PROPERTY,
            base=state.version,
            table=change(state.table).to_dict(),
            client=client(),
        )

    decision = publish_service(handle, draft)
    if decision is None:
        message = "a change of the table was not decided"
        raise InvariantError(message)
    return CommitResult(decision.version, decision.instant, decision.stats)
