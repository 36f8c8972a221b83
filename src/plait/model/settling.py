"""Columns that rows bring along, once others may have changed the columns too (RFC 0027).

Until its commit, a writer that adds columns gives them ids that nobody else knows. Another commit
may give the same ids to other columns, so such columns are told apart by their names.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from plait.errors import RetryableConflictError
from plait.model.evolution import is_wider
from plait.model.schema import FIELD_ID, Schema, id_of, ids_in, parts_of, type_name

NOT_DECIDED: Final = -1
"""The id of a schema that no decision has."""
_AGAIN: Final = "run the write again, with the columns that there are"
_T = pa.types


def settled(old: Schema, added: Collection[int], new: Schema) -> Schema:
    """Return a schema whose own columns have the ids that they have in another one, by name.

    Args:
        old: the schema under which rows came.
        added: those of its ids that nobody else knows.
        new: the schema of the table, with the columns that the rows bring along.

    Raises:
        RetryableConflictError: a column of that name has a type now that does not hold its values,
            or is one that the rows have under another name, or what it was in is gone.
    """
    if not added:
        return old
    known = frozenset(ids_in(old.arrow)).difference(added)
    settling = _Settling(frozenset(added), known)
    fields = [settling.field(each, list(new.arrow), "") for each in old.arrow]
    return Schema(NOT_DECIDED, pa.schema(fields), old.notes)


@dataclass(frozen=True, slots=True)
class _Settling:
    added: frozenset[int]
    known: frozenset[int]
    """The other ids of the rows, which everybody knows."""

    def field(self, field: pa.Field, siblings: Sequence[pa.Field], path: str) -> pa.Field:
        path = f"{path}.{field.name}".lstrip(".")
        own, number = id_of(field) in self.added, id_of(field)
        if own:
            found = next((each for each in siblings if each.name == field.name), None)
            if found is None:
                message = f"column {path!r}, which the rows bring along, is in one that is gone"
                raise RetryableConflictError(message, hint=_AGAIN, columns=[path])
            number = id_of(found)
            _require_holding(field.type, found.type, path)
            if number in self.known:
                message = f"column {path!r}, which the rows bring along, is another column now"
                raise RetryableConflictError(message, hint=_AGAIN, columns=[path])
        else:
            found = next((each for each in siblings if id_of(each) == number), None)
        inner = () if found is None else parts_of(found.type)
        parts = [self.field(each, inner, path) for each in parts_of(field.type)]
        kind = _with(field.type, parts)
        return pa.field(field.name, kind, field.nullable, {FIELD_ID: str(number).encode()})


def _with(kind: pa.DataType, parts: Sequence[pa.Field]) -> pa.DataType:
    if _T.is_struct(kind):
        return pa.struct(parts)
    if _T.is_list(kind):
        return pa.list_(parts[0])
    return pa.map_(*parts) if _T.is_map(kind) else kind


def _require_holding(given: pa.DataType, there: pa.DataType, path: str) -> None:
    if _T.is_nested(given) and _T.is_nested(there) and type(given) is type(there):
        return  # their parts are compared
    if given == there or is_wider(there, given):
        return
    message = (
        f"column {path!r} was added by another commit as {type_name(there)}, and the rows bring it "
        f"as {type_name(given)}"
    )
    hint = "cast the column, and run the write again"
    raise RetryableConflictError(message, hint=hint, columns=[path])
