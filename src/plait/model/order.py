"""Orders of rows: by record key, or by columns as clustering makes them, and how files tell."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import Final

from plait.errors import OptionError
from plait.model.contract import Options
from plait.model.plan import TableSpec
from plait.model.value import is_plain
from plait.model.words import ORDER_KINDS

NO_ORDER: Final = -1
"""The ``order`` of a file whose rows stand as they came."""
KEY_ORDER: Final = 0
"""The ``order`` of a file that is sorted by record key."""
_ID_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Order:
    """An order of rows by columns."""

    columns: tuple[str, ...]
    kind: str = "sort"
    """``sort``, the first column the most important; or along a curve, ``zorder`` or ``hilbert``,
    where all columns count the same."""

    @property
    def id(self) -> int:
        """The number by which files in this order tell it: a hash, so that nothing counts them.

        Two orders with one number would cost bytes: a file passes for one that is in order.
        """
        text = json.dumps([self.kind, *self.columns], ensure_ascii=False, separators=(",", ":"))
        return zlib.crc32(text.encode()) & _ID_MAX or 1


def recorded_order(options: Options) -> Order | None:
    """Return the order that a table's options name; None if they name none.

    >>> recorded_order(Options.of({"cluster.by": "day, city"})).columns
    ('day', 'city')
    """
    columns = options.names("cluster.by")
    return Order(columns, options.choice("cluster.kind")) if columns else None


def check_order(order: Order, spec: TableSpec, key: str) -> None:
    """Raise OptionError if rows of a table cannot be put in an order.

    Args:
        order: the order.
        spec: of the table.
        key: what the caller named the columns by.
    """
    if order.kind not in ORDER_KINDS:
        message = f"kind={order.kind!r} is unknown"
        hint = f"one of {', '.join(ORDER_KINDS)}"
        raise OptionError(message, hint=hint, key="kind", value=order.kind)
    plain = [field.name for field in spec.schema.arrow if is_plain(field.type)]
    for name in order.columns:
        if name not in plain or order.columns.count(name) > 1:
            message = f"rows cannot be put in an order by {name!r}"
            hint = f"columns of plain values, each once: {', '.join(plain)}"
            raise OptionError(message, hint=hint, key=key, value=name)
    if not order.columns:
        hint = "name columns, or set the property cluster.by"
        raise OptionError("an order needs a column", hint=hint, key=key, value="")
