"""Rows as JSON values, the form in which ``v1/*.json`` says what each version shows."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterable
from decimal import Decimal


def plain(value: object) -> object:
    """Return a value of ``to_pylist`` as a JSON value; each value has exactly one."""
    match value:
        case bool() | int() | str() | None:
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return value.hex()
        case Decimal():
            return str(value)
        case dt.datetime():
            text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
            return text if value.tzinfo is None else f"{text}Z"
        case dt.date():
            return value.isoformat()
        case dict():
            return {name: plain(item) for name, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
    raise TypeError(type(value))


def listed(rows: Iterable[object]) -> list[str]:
    """Return rows as texts in a fixed order, to compare tables whose rows have none."""
    return sorted(json.dumps(plain(row), ensure_ascii=False) for row in rows)
