"""JSON from elsewhere: how long and how deep it is, is known before it is parsed.

Python's parser calls itself for each level, and builds what it is given. So a body of a megabyte of
brackets costs its stack, and one that is larger costs memory, before anybody can look at it.
"""

from __future__ import annotations

import json
import re
from typing import Final, Never

_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
"""A text, which ends with the body if it has no other end, or a bracket. It never looks back, so
every body takes time in proportion to its length."""
DEPTH_MAX: Final = 64


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
