"""Arrow expressions to predicates, with the meaning that Arrow gives them.

Arrow hands out the nodes of an expression only in its serialised form: a record batch of literals
and options, and a list of nodes in its schema's metadata. What is read there is put together
again and compared with the original, so that a change of that form costs pruning, never rows.

Where Arrow and SQL differ (NaN, nulls in IN) the tree says what Arrow means.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import PredicateError
from plait.expr.arrow_values import UntranslatableError, compared, contained_in, is_nan
from plait.expr.tree import (
    DEPTH_MAX,
    Always,
    And,
    Column,
    Compare,
    IsNull,
    Like,
    Or,
    Predicate,
    Value,
    all_of,
    any_of,
    bounded,
    find_column,
    negate,
)

NODES_MAX: Final = 10_000
_OPERATORS: Final = {
    "equal": "=",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_MIRRORED: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_SUBSTRINGS: Final = {
    "starts_with": "{}%",
    "ends_with": "%{}",
    "match_substring": "%{}%",
    "match_like": "",
}
_Join: TypeAlias = dict[str, Callable[..., Predicate]]
_JOINS: Final[_Join] = {"and_kleene": all_of, "or_kleene": any_of}
_Options: TypeAlias = dict[str, pa.Scalar]
_Operand: TypeAlias = "Column | pa.Scalar | _Joined | Predicate"


def from_arrow(expression: pc.Expression, schema: pa.Schema) -> Predicate | None:
    """Translate an expression over columns of a schema; None if it has no tree.

    Understood are comparisons of a column with a literal, is_in, is_null, is_valid, is_nan, the
    LIKE family, boolean columns and literals, and their combinations by ``&``, ``|`` and ``~``.

    Raises:
        PredicateError: it is larger than Arrow could evaluate.
    """
    try:
        decoder = _Decoder(expression)
    except (NotImplementedError, pa.ArrowException):
        return None  # columns by position
    if decoder.size > NODES_MAX:
        message = f"an expression of {decoder.size} nodes"
        raise PredicateError(message, hint=f"at most {NODES_MAX}; use isin for many values")
    try:
        predicate, again = decoder.decode(schema)
    except (UntranslatableError, PredicateError, pa.ArrowException, NotImplementedError):
        return None
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None  # not the form that is known
    return bounded(predicate) if again.equals(expression) else None


@dataclass(slots=True)
class _Joined:
    """Operands of one AND or OR that is still growing."""

    name: str
    items: list[Predicate]
    depth: int

    def closed(self) -> Predicate:
        """Give the predicate."""
        if self.depth > DEPTH_MAX:
            raise UntranslatableError
        return _JOINS[self.name](*self.items)


@dataclass(slots=True)
class _Call:
    """A call whose arguments are still being read."""

    name: str
    operands: list[_Operand] = field(default_factory=list)
    parts: list[pc.Expression] = field(default_factory=list)
    options: _Options = field(default_factory=dict)


class _Decoder:
    """Reads one serialised expression: the tree, and the expression anew."""

    def __init__(self, expression: pc.Expression) -> None:
        buffer = expression.__reduce__()[1][0]
        self._values = pa.ipc.open_file(pa.BufferReader(buffer)).get_batch(0)
        nodes = list(_metadata(self._values.schema))
        self.size = len(nodes)
        self._nodes = iter(nodes)

    def decode(self, schema: pa.Schema) -> tuple[Predicate, pc.Expression]:
        """Read it without descending: chains of a thousand ORs are deep."""
        open_: list[_Call] = [_Call("")]
        for name, text in self._nodes:
            top = open_[-1]
            match name:
                case "call":
                    open_.append(_Call(text))
                case "end":
                    open_.pop()
                    _add(open_[-1], *_called(top))
                case "options":
                    top.options = dict(self._values.column(int(text))[0].items())
                case "literal":
                    scalar = self._values.column(int(text))[0]
                    _add(top, scalar, pc.scalar(scalar))
                case _:
                    _add(top, *self._column(schema, name, text))
        (operand,), (again,) = open_[0].operands, open_[0].parts
        return _truth(operand), again

    def _column(self, schema: pa.Schema, name: str, text: str) -> tuple[Column, pc.Expression]:
        path: tuple[str, ...] = (text,)
        if name == "nested_field_ref":
            parts = [next(self._nodes) for _ in range(int(text))]
            path = tuple(part for _, part in parts)
        elif name != "field_ref":
            raise UntranslatableError
        column = find_column(schema, path, "")
        if column.path != path:
            raise UntranslatableError
        return column, pc.field(*path)


def _add(call: _Call, operand: _Operand, part: pc.Expression) -> None:
    call.operands.append(operand)
    call.parts.append(part)


def _called(call: _Call) -> tuple[_Operand, pc.Expression]:
    name, operands, parts, options = call.name, call.operands, call.parts, call.options
    if name in _JOINS:
        left, right = operands
        return _joined(name, left, right), getattr(pc, name)(*parts)
    if name == "invert":
        (inner,) = operands
        return negate(_truth(inner)), pc.invert(*parts)
    if name in _OPERATORS:
        return _compared(_OPERATORS[name], *operands), getattr(pc, name)(*parts)
    (column,) = operands
    if not isinstance(column, Column):
        raise UntranslatableError
    return _asked(name, column, options), _asked_again(name, parts[0], options)


def _joined(name: str, left: _Operand, right: _Operand) -> _Joined:
    """Put two operands together; a chain of the same join stays flat."""
    grown = left if isinstance(left, _Joined) and left.name == name else None
    if grown is None:
        grown = _Joined(name, [_truth(left)], 1 + _depth(left))
    grown.items.append(_truth(right))
    grown.depth = max(grown.depth, 1 + _depth(right))
    return grown


def _depth(operand: _Operand) -> int:
    if isinstance(operand, _Joined):
        return operand.depth
    if isinstance(operand, (And, Or)):
        return 1 + max(map(_depth, operand.items))
    return 0


def _truth(operand: _Operand) -> Predicate:
    """Take an operand as a condition."""
    if isinstance(operand, _Joined):
        return operand.closed()
    if isinstance(operand, Column):
        if not pa.types.is_boolean(operand.type):
            raise UntranslatableError
        return Compare(operand, "=", Value("true", operand.type))
    if isinstance(operand, pa.Scalar):
        if not (pa.types.is_boolean(operand.type) or pa.types.is_null(operand.type)):
            raise UntranslatableError
        return Always(operand.as_py())
    return operand


def _compared(op: str, left: _Operand, right: _Operand) -> Predicate:
    if isinstance(left, Column) and isinstance(right, pa.Scalar):
        return compared(left, op, right)
    if isinstance(left, pa.Scalar) and isinstance(right, Column):
        return compared(right, _MIRRORED[op], left)
    raise UntranslatableError


def _asked(name: str, column: Column, options: _Options) -> Predicate:
    match name:
        case "is_valid":
            return IsNull(column, negated=True)
        case "is_null":
            null = IsNull(column)
            nan = options["nan_is_null"].as_py() and pa.types.is_floating(column.type)
            return any_of(null, is_nan(column)) if nan else null
        case "is_nan":
            return is_nan(column)
        case "is_in":
            values = options["value_set"].values
            return contained_in(column, values, options["null_matching_behavior"].as_py())
        case _ if name in _SUBSTRINGS:
            return Like(column, _pattern(name, options))
    raise UntranslatableError


def _asked_again(name: str, part: pc.Expression, options: _Options) -> pc.Expression:
    match name:
        case "is_null":
            return part.is_null(nan_is_null=options["nan_is_null"].as_py())
        case "is_in":
            skip = options["null_matching_behavior"].as_py() == 1
            given = pc.SetLookupOptions(options["value_set"].values, skip_nulls=skip)
            return pc.is_in(part, options=given)
        case _ if name in _SUBSTRINGS:
            return getattr(pc, name)(part, options["pattern"].as_py())
    return getattr(pc, name)(part)


def _pattern(name: str, options: _Options) -> str:
    text = options["pattern"].as_py()
    if not isinstance(text, str) or (name == "match_like" and "\\" in text):
        raise UntranslatableError
    if name == "match_like":
        return text
    for char in "\\%_":
        text = text.replace(char, "\\" + char)
    return _SUBSTRINGS[name].format(text)


class _Exported(ctypes.Structure):
    """The beginning of ArrowSchema, of Arrow's stable C data interface."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_void_p),
    )


def _metadata(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    """Give the metadata of a schema in order: ``schema.metadata`` loses keys that repeat."""
    if not schema.metadata:
        return
    capsule = schema.__arrow_c_schema__()
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    exported = _Exported.from_address(pointer_of(capsule, b"arrow_schema"))
    at = exported.metadata
    if at is None:
        return

    def taken(size: int) -> bytes:
        nonlocal at
        data = ctypes.string_at(at, size)
        at += size
        return data

    def number() -> int:
        return int(struct.unpack("=i", taken(4))[0])

    for _ in range(number()):
        key = taken(number()).decode()
        yield key, taken(number()).decode()
