"""JSON from elsewhere: how long and how deep it is, is known before it is parsed.

Python's parser calls itself for each level, and builds what it is given. So a body of a megabyte of
brackets costs its stack, and one that is larger costs memory, before anybody can look at it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Final, Never

_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
"""A text, which ends with the body if it has no other end, or a bracket. It never looks back, so
every body takes time in proportion to its length."""
_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_SIGNS: Final = (b",", b":", b"[", b"{")
DEPTH_MAX: Final = 64
NODES_MAX: Final = 2_000_000
"""Commas, colons and opening brackets of one file of metadata: what they become in memory takes
less than half a gigabyte, whatever they are."""


def load_json(body: bytes, *, bytes_max: int, depth_max: int = DEPTH_MAX) -> object:
    """Return the value of a JSON text in UTF-8.

    Raises:
        ValueError: it is none, is too long or too deep, has a number that JSON does not have, or a
            text that is half a character.

    >>> load_json(b'{"a": [1]}', bytes_max=100)
    {'a': [1]}
    """
    if len(body) > bytes_max:
        message = f"{len(body)} bytes of JSON, and at most {bytes_max} are read"
        raise ValueError(message)
    require_shallow(body, depth_max)
    return json.loads(body.decode("utf-8"), parse_constant=_refuse)


def load_document(body: bytes, *, nodes_max: int = NODES_MAX) -> dict[str, object]:
    """Return the object of JSON that is a file of a table's metadata.

    Its length is the caller's to bound. What it becomes in memory is bounded here, before anything
    is made of it: a list without content takes two bytes there, and sixty in Python.

    Raises:
        ValueError: it is no object, has too many values, names a field twice, so that readers would
            differ, has a number that JSON does not have, or a text that is half a character.

    >>> load_document(b'{"a": [1]}')
    {'a': [1]}
    """
    found = count_nodes(body)
    if found > nodes_max:
        message = f"{found} values and signs, and at most {nodes_max} are read"
        raise ValueError(message)
    try:
        document = json.loads(body.decode(), parse_constant=_refuse, object_pairs_hook=unique)
    except RecursionError as error:
        message = "JSON is nested too deeply"
        raise ValueError(message) from error
    if not isinstance(document, dict):
        message = f"expected an object of JSON, found {document!r:.80}"
        raise ValueError(message)  # noqa: TRY004 - of the text that is given
    if _HALF.search(body) is not None:
        json.dumps(document, ensure_ascii=False).encode()
    return document


def count_nodes(body: bytes) -> int:
    """Count the commas, colons and opening brackets of a JSON text, those in its texts too.

    A value has at least one of them, so that this bounds their number. To leave texts out would
    cost more time and memory than the bound saves.
    """
    return sum(map(body.count, _SIGNS))


def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Make an object of JSON; raise ValueError if it names a field twice: readers would differ."""
    document = dict(pairs)
    if len(document) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        message = f"field {twice[:80]!r} occurs twice"
        raise ValueError(message)
    return document


def require_shallow(body: bytes, depth_max: int = DEPTH_MAX) -> None:
    """Refuse a JSON text whose arrays and objects are nested too deeply.

    Raises:
        ValueError: they are.

    >>> require_shallow(b"[" * 65)
    Traceback (most recent call last):
    ValueError: JSON is nested deeper than 64 levels
    """
    if body.count(b"[") + body.count(b"{") <= depth_max:
        return
    depth = 0
    for found in _TOKEN.finditer(body):
        head = found[0][:1]
        if head == b'"':
            continue
        depth += 1 if head in b"[{" else -1
        if depth > depth_max:
            message = f"JSON is nested deeper than {depth_max} levels"
            raise ValueError(message)


def _refuse(name: str) -> Never:
    message = f"{name} is no number of JSON"
    raise ValueError(message)
