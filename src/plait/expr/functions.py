"""The operators and functions of expressions, on Arrow arrays and scalars."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import PredicateError
from plait.expr.cast import Value, aligned, cast, wider
from plait.expr.tree import Literal
from plait.model.schema import type_name
from plait.model.value import array_of

_T = pa.types
_INT64_MAX: Final = (1 << 63) - 1
_CONCAT_BYTES_MAX: Final = 512 << 20
"""Maximum size of what one CONCAT makes. Some 8 MB of rows are computed at once; Arrow's texts end
at 2 GiB."""
_PLAIN: Final = {"=": pc.equal, "<": pc.less, "<=": pc.less_equal}


def compared(op: str, left: Value, right: Value) -> Value:
    """Return ``left op right``; NaN is equal to itself and greater than every number."""
    if op == "!=":
        return pc.invert(compared("=", left, right))
    if op == "<=>":
        nulls = pc.and_(pc.is_null(left), pc.is_null(right))
        return pc.or_kleene(pc.fill_null(compared("=", left, right), fill_value=False), nulls)
    if op in (">", ">="):
        return compared(op.replace(">", "<"), right, left)
    left, right = aligned([left, right], moments=True)
    answer = _PLAIN[op](left, right)
    if not (_T.is_floating(left.type) or _T.is_floating(right.type)):
        return answer
    if op == "=":
        return pc.or_(answer, pc.and_(_nan(left), _nan(right)))
    over = _nan(right)
    return pc.or_(answer, over if op == "<=" else pc.and_(over, pc.invert(_nan(left))))


def _nan(value: Value) -> Value:
    return pc.is_nan(value) if _T.is_floating(value.type) else pa.scalar(value=False)


def contained(item: Value, values: tuple[Literal, ...]) -> Value:
    """Tell whether the item is one of some values, none of them null."""
    kind = item.type
    if any(value.type != kind for value in values):
        answer: Value = pa.scalar(value=False)
        for value in values:
            answer = pc.or_kleene(answer, compared("=", item, value.scalar))
        return answer
    known = array_of((value.text for value in values), kind)
    answer = pc.is_in(item, value_set=known)
    if _T.is_floating(kind):
        # is_in looks at bits: there are two zeros and many NaN
        for special in (0.0, float("nan")):
            alone = pa.scalar(special, kind)
            if pc.any(compared("=", known, alone)).as_py():
                answer = pc.or_(answer, pc.fill_null(compared("=", item, alone), fill_value=False))
    if isinstance(item, pa.Array) and not item.null_count:
        return answer
    # is_in says FALSE of a null, where SQL says NULL
    return pc.if_else(pc.is_valid(item), answer, pa.scalar(None, pa.bool_()))


def matched(item: Value, pattern: str) -> Value:
    """Tell whether a text matches an SQL pattern."""
    return pc.match_substring_regex(_text(item), _regex(pattern))


def _regex(pattern: str) -> str:
    """Return the regular expression of an SQL pattern, for the whole text."""
    parts, escaped = [], False
    for char in pattern:
        if escaped or char not in "\\%_":
            parts.append(re.escape(char) if char.isascii() else char)
            escaped = False
        elif char == "\\":
            escaped = True
        else:
            parts.append(".*" if char == "%" else ".")
    return "(?s)^" + "".join(parts) + r"\z"


def _arithmetic(kernel: Callable[[Value, Value], Value]) -> Callable[[Value, Value], Value]:
    """Decimals beside floating-point numbers become the nearest of these."""

    def apply(left: Value, right: Value) -> Value:
        kinds = [left.type, right.type]
        if any(map(_T.is_decimal, kinds)) and any(map(_T.is_floating, kinds)):
            left, right = (cast(side, pa.float64()) for side in (left, right))
        return kernel(left, right)

    return apply


def _divide(left: Value, right: Value) -> Value:
    if not (_T.is_decimal(left.type) and _T.is_decimal(right.type)):
        left, right = (cast(side, pa.float64()) for side in (left, right))
    return pc.divide_checked(left, right)


def _remainder(left: Value, right: Value) -> Value:
    if not (_T.is_integer(left.type) and _T.is_integer(right.type)):
        message = f"{type_name(left.type)} % {type_name(right.type)} is not supported"
        raise PredicateError(message, hint="% needs whole numbers", text="")
    whole = pc.divide_checked(left, right)  # towards zero
    return pc.subtract_checked(left, pc.multiply_checked(whole, right))


def _text(item: Value) -> Value:
    if _T.is_string(item.type) or _T.is_null(item.type):
        return item.cast(pa.string())
    message = f"{type_name(item.type)} is not text"
    raise PredicateError(message, hint="write CAST(... AS STRING)", text="")


def _concat(*items: Value) -> Value:
    texts = [_text(item) for item in items]
    rows = max((len(each) for each in texts if not isinstance(each, pa.Scalar)), default=1)
    size = sum(_size(each, rows) for each in texts)
    if size > _CONCAT_BYTES_MAX:  # Arrow would ask for the memory first
        hint = f"at most {_CONCAT_BYTES_MAX}: concatenate fewer texts, or write fewer rows at once"
        raise PredicateError(f"CONCAT would make {size} bytes of {rows} rows", hint=hint, text="")
    return pc.binary_join_element_wise(*texts, pa.scalar("", pa.string()))


def _size(texts: Value, rows: int) -> int:
    """Return the bytes of texts, one a row."""
    if isinstance(texts, pa.Scalar):
        return len(texts.as_py().encode()) * rows if texts.is_valid else 0
    return int(pc.sum(pc.cast(pc.binary_length(texts), pa.int64())).as_py() or 0)


def _substring(item: Value, start: Value, length: Value | None = None) -> Value:
    """Count from 1, or from the end if negative; 0 is 1."""
    first = int(start.as_py())
    if first < 0 and length is not None:
        message = "SUBSTRING from the end with a length is not supported"
        raise PredicateError(message, hint="pass a function instead", text="")
    begin = first - 1 if first > 0 else first
    stop = None if length is None else min(begin + max(0, int(length.as_py())), _INT64_MAX)
    return pc.utf8_slice_codeunits(_text(item), begin, stop)


def _nullif(left: Value, right: Value) -> Value:
    same = pc.fill_null(compared("=", left, right), fill_value=False)
    return pc.if_else(same, pa.scalar(None, left.type), left)


def _extreme(*, least: bool) -> Callable[..., Value]:
    def choose(*items: Value) -> Value:
        best, *rest = aligned(list(items))
        for item in rest:
            smaller = compared("<" if least else ">", item, best)
            better = pc.or_(pc.fill_null(smaller, fill_value=False), pc.is_null(best))
            best = pc.if_else(pc.and_(better, pc.invert(pc.is_null(item))), item, best)
        return best

    return choose


def _rounded(kernel: Callable[[Value], Value]) -> Callable[[Value], Value]:
    """FLOOR and CEIL give whole numbers."""

    def whole(item: Value) -> Value:
        if _T.is_decimal(item.type):
            rounded = kernel(wider(item))
            return cast(rounded, pa.decimal128(rounded.type.precision - rounded.type.scale, 0))
        rounded = kernel(item)
        return cast(rounded, pa.int64()) if _T.is_floating(rounded.type) else rounded

    return whole


FUNCTIONS: Final[Mapping[str, Callable[..., Value]]] = {
    "+": _arithmetic(pc.add_checked),
    "-": _arithmetic(pc.subtract_checked),
    "*": _arithmetic(pc.multiply_checked),
    "/": _divide,
    "%": _remainder,
    "negate": pc.negate_checked,
    "nullif": _nullif,
    "greatest": _extreme(least=False),
    "least": _extreme(least=True),
    "abs": pc.abs_checked,
    "floor": _rounded(pc.floor),
    "ceil": _rounded(pc.ceil),
    "upper": lambda item: pc.utf8_upper(_text(item)),
    "lower": lambda item: pc.utf8_lower(_text(item)),
    "trim": lambda item: pc.utf8_trim(_text(item), characters=" "),
    "ltrim": lambda item: pc.utf8_ltrim(_text(item), characters=" "),
    "rtrim": lambda item: pc.utf8_rtrim(_text(item), characters=" "),
    "length": lambda item: pc.utf8_length(_text(item)),
    "concat": _concat,
    "substring": _substring,
}
