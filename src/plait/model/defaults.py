"""The values of rows that lack a column: those that are there already, and those that come."""

from __future__ import annotations

import pyarrow as pa

from plait.model.schema import NO_NOTE, ColumnNote, Schema
from plait.model.value import from_text


def initial_value(schema: Schema, name: str) -> pa.Scalar | None:
    """Return what rows of files without the column have; None for null."""
    return _value(_note(schema, name).initial, schema, name)


def default_value(schema: Schema, name: str) -> pa.Scalar | None:
    """Return what rows have that come without the column; None for null."""
    return _value(_note(schema, name).default, schema, name)


def _note(schema: Schema, name: str) -> ColumnNote:
    return schema.notes.get(schema.ids[name], NO_NOTE) if schema.notes else NO_NOTE


def _value(text: str | None, schema: Schema, name: str) -> pa.Scalar | None:
    return None if text is None else from_text(text, schema.arrow.field(name).type)
