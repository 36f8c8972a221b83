"""Paths of columns: names divided by dots, a name with a dot in backticks, as Spark writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from plait.errors import SchemaError

_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")


def path_parts(path: object) -> tuple[str, ...]:
    """Return the names that a path has, from the column on.

    Raises:
        SchemaError: it is no text, a name is empty, or a backtick is not closed.

    >>> path_parts("address.city"), path_parts("`a.b`.c"), path_parts("`a``b`")
    (('address', 'city'), ('a.b', 'c'), ('a`b',))
    """
    if not isinstance(path, str):
        message = f"not a column: {str(path)[:100]!r}"
        raise SchemaError(message, hint="give its name as a text", column=str(path)[:100])
    parts, at = list[str](), 0
    while found := _PART.match(path, at):
        quoted, plain = found.groups()
        parts.append(plain if quoted is None else quoted.replace("``", "`"))
        at = found.end()
        if at == len(path):
            return tuple(parts)
        if path[at] != ".":
            break
        at += 1
    message = f"not a path of a column: {path!r}"
    hint = "divide names by dots, and put a name with a dot or a backtick in backticks: `a.b`"
    raise SchemaError(message, hint=hint, column=path)


def column_path(parts: Iterable[str]) -> str:
    """Return the path of names; ``path_parts`` reads it again.

    >>> column_path(["address", "city"]), column_path(["a.b", "c"])
    ('address.city', '`a.b`.c')
    """
    return ".".join(map(_quoted, parts))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`" if "." in name or "`" in name else name
