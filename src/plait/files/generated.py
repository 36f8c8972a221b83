"""Generated columns: the value comes from other columns of the row (RFC 0031).

The expression is a transform, as partitions have them, or SQL text, as values of an update are.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from plait.errors import BadRecordError, PredicateError, SchemaError
from plait.expr.bind import bind, find_column
from plait.expr.cast import cast
from plait.expr.checks import renamed_text, require_own_names
from plait.expr.evaluate import Sides, compute
from plait.expr.sql import parse_expression
from plait.expr.tree import TARGET, Call, Expression, columns_read, parts_of
from plait.files.partition_values import values_of
from plait.files.sample import first_failing, sample_of, shown
from plait.model.evolution import is_wider
from plait.model.partitioning import PartitionField, is_transform, parse_field
from plait.model.schema import Schema, type_name
from plait.model.value import is_plain

_ALPHABETS: Final = ("upper", "lower")
"""Functions whose values depend on tables of letters: Arrow and the JVM have other ones."""


@dataclass(frozen=True, slots=True)
class Generated:
    """A column with its expression, bound to the columns of its table."""

    name: str
    text: str
    """The expression as definitions have it."""
    type: pa.DataType
    sources: tuple[str, ...]
    """The columns that it looks at."""
    formula: PartitionField | Expression

    @classmethod
    def of(cls, name: str, text: str, schema: pa.Schema) -> Generated:
        """Bind the expression of a column.

        Raises:
            PredicateError: it is not understood, or looks at no column that there is.
            SchemaError: its value is of another type than the column, or the same for all rows.
        """
        kind = schema.field(name).type
        made = _transform if is_transform(text) else _sql
        try:
            generated = made(name, text.strip(), schema)
        except PredicateError:
            raise
        except (ValueError, pa.ArrowException, TypeError) as error:
            message = f"column {name!r} cannot be generated as {text[:100]!r}: {str(error)[:200]}"
            hint = "use a transform such as day(c), or SQL text as in an update"
            raise SchemaError(message, hint=hint, column=name, found=text[:200]) from error
        found = generated.type
        other = isinstance(generated.formula, PartitionField) or not is_wider(kind, found)
        if not is_plain(kind) or (found != kind and other):
            message = (
                f"column {name!r} is {type_name(kind)}, and {text[:100]!r} gives {type_name(found)}"
            )
            hint = f"write CAST(... AS {type_name(kind)}), or give the column that type"
            raise SchemaError(message, hint=hint, column=name, found=type_name(found))
        if not generated.sources:
            message = f"{text[:100]!r} looks at no column"
            raise SchemaError(message, hint="use a default", column=name, found=text[:200])
        return replace(generated, type=kind)

    def values(self, rows: pa.RecordBatch) -> pa.Array:
        """Return the value for each row, whose columns have the table's types.

        Raises:
            BadRecordError: a number overflows, a divisor is zero, or a cast has no value. Names the
                first such row.
        """
        try:
            return self._computed(rows)
        except pa.ArrowInvalid as error:
            sample = sample_of(rows, first_failing(rows, self._computed), self.sources[0])
            message = (
                f"column {self.name!r}, which is generated as {self.text[:100]!r}, cannot be "
                f"computed for a row: {str(error)[:200]}; the first is {shown(sample)}"
            )
            hint = "correct or drop such rows before you write them"
            raise BadRecordError(message, hint=hint, column=self.name, sample=sample) from error

    def _computed(self, rows: pa.RecordBatch) -> pa.Array:
        if isinstance(self.formula, PartitionField):
            return values_of(self.formula, rows)
        looked_at = rows.select(list(self.sources))
        return cast(compute(self.formula, Sides({TARGET: looked_at}, rows.num_rows)), self.type)

    def renamed(self, old: str, new: str) -> str:
        """Return the expression with another name of a column."""
        if isinstance(self.formula, PartitionField):
            return replace(self.formula, sources=(new,)).text
        return renamed_text(self.text, old, new)


def _transform(name: str, text: str, schema: pa.Schema) -> Generated:
    field = parse_field(text)
    (source,) = field.sources
    field = replace(field, sources=find_column(schema, (source,), text).path)
    return Generated(name, field.text, field.kind(schema), field.sources, field)


def _sql(name: str, text: str, schema: pa.Schema) -> Generated:
    plain = pa.schema([each.remove_metadata() for each in schema])
    require_own_names(text, plain)
    formula = bind(parse_expression(text), {TARGET: plain}, text)
    for part in parts_of(formula):
        if isinstance(part, Call) and part.name in _ALPHABETS:
            message = f"{part.name.upper()} of some letters differs between engines, as of 'ß'"
            raise SchemaError(
                message, hint="let rows bring the value", column=name, found=text[:200]
            )
    value = compute(formula, Sides({TARGET: plain.empty_table()}, 0))
    read = columns_read(formula) or ()
    sources = tuple(each for each in plain.names if each in read)
    return Generated(name, text, value.type, sources, formula)


def generated_in(schema: Schema) -> tuple[Generated, ...]:
    """Return the generated columns of a schema.

    Raises:
        PredicateError: an expression is not understood: a newer Plait wrote it.
    """
    generated = schema.generated
    return _generated(tuple(generated.items()), schema.arrow) if generated else ()


@functools.lru_cache(maxsize=64)
def _generated(texts: tuple[tuple[str, str], ...], schema: pa.Schema) -> tuple[Generated, ...]:
    try:
        return tuple(Generated.of(name, text, schema) for name, text in texts)
    except SchemaError as error:
        raise PredicateError(error.message, hint="upgrade plait", text="") from error


def ungenerated(schema: Schema) -> Schema:
    """Return the columns of rows of which nobody knows whether their values were generated."""
    notes = {number: replace(note, generated=None) for number, note in schema.notes.items()}
    return replace(schema, notes=notes) if schema.generated else schema
