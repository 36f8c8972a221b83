"""Columns that rows bring along: found out from the first rows of a writer (RFC 0027)."""

from __future__ import annotations

from plait.definition.evolving import lacking_columns, with_added_columns, with_columns_of
from plait.definition.table_def import TableDef
from plait.engine import Engine
from plait.errors import OptionError, SchemaMismatchError
from plait.model.request import WriteRequest


def resolve_added_columns(
    data: object, engine: Engine, request: WriteRequest, table: TableDef, *, sinks: bool
) -> tuple[object, WriteRequest]:
    """Return data to write in place of some, and the request with the columns of the first rows.

    Args:
        data: rows that come.
        engine: takes them.
        request: what is asked.
        table: the table at the base.
        sinks: whether the rows go to sinks first.

    Raises:
        SchemaError: a column cannot be added.
        SchemaMismatchError: later rows have further columns.
        OptionError: the engine cannot tell, or there are sinks, which lack such columns.
        RepushOpenError: a repush is open, and a column would be added.
    """
    data, given = engine.opened(data)
    if request.added_columns is None:
        request = with_added_columns(request, table, given)
    evolved = with_columns_of(table, request)
    late = next(lacking_columns(given, evolved.spec.schema), None)
    if late is not None:
        message = f"column {late.path!r} is not in the first rows of this writer"
        hint = "the first rows say which columns are added: write these first, or open a writer"
        raise SchemaMismatchError(message, hint=hint, column=late.path, found=list(given.names))
    if sinks and evolved is not table:
        message = "rows for sinks cannot add columns, which the sinks lack"
        hint = "add the columns to the sinks and with Table.alter.columns(), then write"
        raise OptionError(message, hint=hint, key="evolve", value="add")
    return data, request
