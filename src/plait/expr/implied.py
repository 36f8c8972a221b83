"""What follows, in our terms, from a predicate that another library evaluates.

Arrow and Polars decide themselves which rows they select. To skip files before that, we need a
predicate of our own that is TRUE of every row of which theirs is: the implied one. It may be TRUE
of more rows, never of fewer. Of a condition that is not understood nothing follows.

NOT is what makes this hard: from "at most this" one cannot conclude by negation. So each part says
two things, what follows where it is TRUE and what follows where it is FALSE, and NOT swaps them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import PredicateError
from plait.expr.literal import compare, contained
from plait.expr.tree import (
    DEPTH_MAX,
    FALSE,
    LEAVES_MAX,
    NEGATED,
    TRUE,
    VALUES_MAX,
    And,
    Arrow,
    Column,
    IsNull,
    Literal,
    Or,
    Predicate,
    all_of,
    any_of,
    negate,
)
from plait.model.value import is_plain, to_text

MIRRORED: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_PARTS_A_LEAF: Final = 8
"""Parts that Arrow writes for a condition: two calls, a column, a literal, options, their ends."""
_PARTS: Final = frozenset(("call", "literal", "options", "end"))
"""Parts of an expression of Arrow, as it is serialised, that name no column."""
_BY_POSITION: Final = "FieldPath("
"""How Arrow shows a column by its position. It serialises no such expression."""
_FLOAT_DIGITS: Final = {32: 24, 64: 53}
"""Binary digits up to which a floating-point type of so many bits has every integer."""
_UNREADABLE: Final = (
    pa.ArrowException,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    StopIteration,
)
"""What may be raised where a serialised expression is not as expected."""
_T = pa.types


class Implied(NamedTuple):
    """What follows from a condition on a row."""

    true: Predicate = TRUE
    """A predicate that is TRUE of every row of which the condition is TRUE."""
    false: Predicate = TRUE
    """A predicate that is TRUE of every row of which the condition is FALSE."""
    depth: int = 1

    @property
    def inverse(self) -> Implied:
        """What follows from NOT."""
        return Implied(self.false, self.true, self.depth)


UNKNOWN: Final = Implied()


def implied(predicate: Predicate, schema: pa.Schema) -> Predicate:
    """Return what follows from a predicate of which parts are Arrow's.

    It is for pruning. Rows are selected by the predicate itself.
    """
    match predicate:
        case Arrow(expression):
            return of_arrow(expression, schema).true
        case And(items):
            return all_of(*(implied(item, schema) for item in items))
        case Or(items):
            return any_of(*(implied(item, schema) for item in items))
    return predicate


# --- conditions that every library has ---------------------------------------------------------


def every(parts: Sequence[Implied]) -> Implied:
    """Return what follows from AND, whatever it makes of nulls."""
    true = all_of(*(part.true for part in parts))
    return _bounded(Implied(true, any_of(*(part.false for part in parts)), _deeper(parts)))


def some(parts: Sequence[Implied]) -> Implied:
    """Return what follows from OR, whatever it makes of nulls."""
    true = any_of(*(part.true for part in parts))
    return _bounded(Implied(true, all_of(*(part.false for part in parts)), _deeper(parts)))


def constant(value: object) -> Implied:
    """Return what follows from a constant; None is NULL."""
    return Implied(TRUE if value is True else FALSE, TRUE if value is False else FALSE)


def is_null(column: Column) -> Implied:
    """Return what follows from IS NULL."""
    return Implied(IsNull(column), IsNull(column, negated=True))


def comparison(column: Column, op: str, value: pa.Scalar) -> Implied:
    """Return what follows from a comparison of a column with a literal.

    The literal has to be exact in the column's type, and of its class: what Arrow does with others
    depends on where it puts a cast, which may round. For us NaN is equal to itself and greater than
    any number; for others it is unequal to everything. So of a float nothing follows where NaN is
    the literal, or where "greater" is negated.
    """
    if not value.is_valid:
        return constant(None)
    try:
        literal = _literal(value, column.type)
        if literal is None:
            return UNKNOWN
        true = compare(column, op, literal, "")
        false = compare(column, NEGATED[op], literal, "")
    except (PredicateError, pa.ArrowException, ValueError, ArithmeticError):
        return UNKNOWN
    negates_nan = _T.is_floating(column.type) and op in (">", ">=")
    return Implied(true, TRUE if negates_nan else false)


def membership(column: Column, values: pa.Array) -> Implied:
    """Return what follows from IN.

    Arrow says FALSE of a null, or TRUE if there is a null among the values. By its hashes, 0.0 and
    -0.0 are two values: so nothing follows from NOT IN of a float.
    """
    if len(values) > VALUES_MAX:
        return UNKNOWN
    try:
        literals = [_literal(each, column.type) for each in values if each.is_valid]
        known = [each for each in literals if each is not None]
        if len(known) < len(literals):
            return UNKNOWN
        found = contained(column, known, "")
    except (PredicateError, pa.ArrowException, ValueError, ArithmeticError):
        return UNKNOWN
    null = IsNull(column)
    true = any_of(found, null) if values.null_count else found
    return Implied(true, TRUE if _T.is_floating(column.type) else any_of(negate(found), null))


def find_column(name: str, schema: pa.Schema) -> Column | None:
    """Return a column of which something may be known; None if there is none."""
    index = schema.get_field_index(name)
    if index < 0 or not is_plain(schema.field(index).type):
        return None
    return Column((name,), schema.field(index).type)


def _deeper(parts: Sequence[Implied]) -> int:
    return 1 + max((part.depth for part in parts), default=0)


def _bounded(found: Implied) -> Implied:
    return found if found.depth <= DEPTH_MAX else UNKNOWN


def _literal(value: pa.Scalar, kind: pa.DataType) -> Literal | None:
    """Return a literal that is exact in the type of a column; None if it is of another class."""
    given = value.type
    if _T.is_floating(kind):
        return _real(value, kind)
    if _T.is_signed_integer(kind) or _T.is_decimal(kind):
        if _T.is_integer(given):
            return Literal(str(int(value.as_py())), pa.int64()) if _is_long(value) else None
        if not (_T.is_decimal(kind) and _T.is_decimal128(given)):
            return None
    elif _T.is_string(kind):
        if not (_T.is_string(given) or _T.is_large_string(given) or _T.is_string_view(given)):
            return None
        value = value.cast(kind)
    elif _T.is_binary(kind):
        if not (_T.is_binary(given) or _T.is_large_binary(given) or _T.is_binary_view(given)):
            return None
        value = value.cast(kind)
    elif _T.is_timestamp(kind):
        if not _T.is_timestamp(given) or (given.tz is None) != (kind.tz is None):
            return None
        value = value.cast(kind)
    elif given != kind:
        return None
    return Literal(to_text(value, value.type), value.type)


def _is_long(value: pa.Scalar) -> bool:
    return -(1 << 63) <= int(value.as_py()) < (1 << 63)


def _real(value: pa.Scalar, kind: pa.DataType) -> Literal | None:
    """Return a number as a float of the column's type if it is exact, and no NaN."""
    given = value.type
    if not (_T.is_integer(given) or _T.is_float32(given) or _T.is_float64(given)):
        return None
    number = value.as_py()
    if _T.is_integer(given) and abs(number) > 1 << _FLOAT_DIGITS[kind.bit_width]:
        return None
    number = float(number)
    with np.errstate(over="ignore"):
        exact = _T.is_float64(kind) or float(np.float32(number)) == number
    return Literal.of(number, kind) if exact and number == number else None  # noqa: PLR0124 - NaN


# --- expressions of Arrow ------------------------------------------------------------------------


def of_arrow(expression: pc.Expression, schema: pa.Schema) -> Implied:
    """Return what follows from an expression of Arrow.

    Arrow lets nobody look into an expression. It serialises one as a record batch that has the
    literals in its columns and the tree in the metadata of its schema. That form is not promised
    to stay, so whatever is not as expected tells nothing.
    """
    try:
        batch = pa.ipc.open_file(expression.__reduce__()[1][0]).get_batch(0)
        parts = list(_metadata(batch.schema))
        return _Reader(batch, schema).read(parts) if _is_short(parts) else UNKNOWN
    except _UNREADABLE:
        return UNKNOWN


def fields_of(expression: pc.Expression) -> frozenset[str] | None:
    """Return the columns that an expression of Arrow looks at; None if nobody can tell."""
    try:
        batch = pa.ipc.open_file(expression.__reduce__()[1][0]).get_batch(0)
        parts = iter(list(_metadata(batch.schema)))
    except _UNREADABLE:
        return None
    names = set()
    for what, value in parts:
        if what == "nested_field_ref":
            names.add(next(parts)[1])
            for _ in range(int(value) - 1):
                next(parts)
        elif what == "field_ref":
            names.add(value)
        elif what not in _PARTS:
            return None
    return frozenset(names)


def named_in(expression: pc.Expression, schema: pa.Schema) -> frozenset[str]:
    """Return the columns that an expression of Arrow looks at; all where it may be any by name.

    Raises:
        PredicateError: it may look at columns by their positions, which differ between readers.
    """
    names = fields_of(expression)
    if names is not None:
        return names
    try:
        shown = str(expression)
    except UnicodeDecodeError:  # of a value that is none of a column's
        shown = _BY_POSITION
    if _BY_POSITION not in shown:
        return frozenset(schema.names)
    message = f"name the columns: {shown[:200]} looks at one by its position"
    raise PredicateError(message, hint="pc.field('name') names a column", text=shown[:200])


def _is_short(parts: Sequence[object]) -> bool:
    return len(parts) <= LEAVES_MAX * _PARTS_A_LEAF


def _metadata(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    """Return the metadata of a schema, each entry: ``schema.metadata`` has the first of a key.

    By Arrow's C interface: after the count come the length and the bytes of each key and value.
    """
    capsule = schema.__arrow_c_schema__()
    place = _pointer(capsule, b"arrow_schema")
    _, _, at = (ctypes.c_void_p * 3).from_address(place)  # format, name, metadata
    if at is None:
        return
    count, at = _int32(at), at + 4
    for _ in range(count):
        texts = []
        for _ in range(2):
            length = _int32(at)
            texts.append(ctypes.string_at(at + 4, length).decode())
            at += 4 + length
        yield texts[0], texts[1]


_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _int32(at: int) -> int:
    return ctypes.c_int32.from_address(at).value


_Argument: TypeAlias = "Column | pa.Scalar | Implied"


@dataclass(slots=True)
class _Call:
    """A call of a function of Arrow whose arguments are being read."""

    name: str
    arguments: list[_Argument] = field(default_factory=list)
    options: pa.Scalar | None = None


_COMPARISONS: Final = {
    "equal": "=",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}


@dataclass(slots=True)
class _Reader:
    """Reads the parts of a serialised expression, in the order in which they were written."""

    batch: pa.RecordBatch
    schema: pa.Schema

    def read(self, parts: Sequence[tuple[str, str]]) -> Implied:
        """Return what follows from it."""
        calls = [_Call("")]
        left = iter(parts)
        for what, value in left:
            match what:
                case "call":
                    calls.append(_Call(value))
                case "literal":
                    calls[-1].arguments.append(self._value(value))
                case "options":
                    calls[-1].options = self._value(value)
                case "field_ref":
                    calls[-1].arguments.append(find_column(value, self.schema) or UNKNOWN)
                case "nested_field_ref":
                    for _ in range(int(value)):
                        next(left)
                    calls[-1].arguments.append(UNKNOWN)
                case "end":
                    done = calls.pop()
                    calls[-1].arguments.append(_called(done))
                case _:
                    return UNKNOWN
        (root,) = calls
        (argument,) = root.arguments
        return _condition(argument)

    def _value(self, index: str) -> pa.Scalar:
        return self.batch.column(int(index))[0]


def _condition(argument: _Argument) -> Implied:
    if isinstance(argument, Implied):
        return argument
    if isinstance(argument, Column):
        boolean = _T.is_boolean(argument.type)
        return comparison(argument, "=", pa.scalar(value=True)) if boolean else UNKNOWN
    known = _T.is_boolean(argument.type) or _T.is_null(argument.type)
    return constant(argument.as_py()) if known else UNKNOWN


def _called(call: _Call) -> Implied:
    match call.name, call.arguments:
        case ("and" | "and_kleene", arguments):
            return every([_condition(each) for each in arguments])
        case ("or" | "or_kleene", arguments):
            return some([_condition(each) for each in arguments])
        case "if_else", [known, found, pa.Scalar() as null] if not null.is_valid:
            # DuckDB's IN: what is not known is NULL, which is neither TRUE nor FALSE.
            asked, answer = _condition(known), _condition(found)
            true, false = (all_of(asked.true, each) for each in answer[:2])
            return _bounded(Implied(true, false, _deeper([asked, answer])))
        case "invert", [argument]:
            return _condition(argument).inverse
        case name, [Column() as column, pa.Scalar() as value] if name in _COMPARISONS:
            return comparison(column, _COMPARISONS[name], value)
        case name, [pa.Scalar() as value, Column() as column] if name in _COMPARISONS:
            return comparison(column, MIRRORED[_COMPARISONS[name]], value)
        case "is_in", [Column() as column] if call.options is not None:
            return membership(column, call.options["value_set"].values)
        case "is_valid", [Column() as column]:
            return is_null(column).inverse
        case "is_null", [Column() as column]:
            return _nulls(column, call.options)
    return UNKNOWN


def _nulls(column: Column, options: pa.Scalar | None) -> Implied:
    found = is_null(column)
    counts_nan = options is None or options["nan_is_null"].as_py() is not False
    return found._replace(true=TRUE) if counts_nan and _T.is_floating(column.type) else found
