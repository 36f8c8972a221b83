"""JSON documents: proved by a checksum, and measured before they are parsed.

A decision::

    {"checksum":"<sha256 of what follows>",
    "decision":{...}}

The checksum covers the exact bytes of the second part, and the decision names the checksum of
the one before, so that a timeline is a chain.

A record under ``.meta`` is named by no decision, so nothing else tells whether it is whole, or that
of another name. It is JSON whose last field covers its path and all fields before. Whoever reads
one that does not prove itself takes the most careful view of what its name alone says (RFC 0036).

How long and how deep a body is, is known before it is parsed: Python's parser calls itself for each
level and builds what it is given, so a megabyte of brackets would cost its stack, and more of them
memory, before anybody could look at them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from enum import Enum
from typing import Final, Never

import xxhash

from plait.errors import CorruptMetadataError

_HEAD = b'{"checksum":"'
_MIDDLE = b'",\n"decision":'
_TAIL = b"}\n"
_DIGITS = 64


def seal(body: bytes) -> bytes:
    """Return the bytes of a slot: a document with its checksum before it."""
    return b"".join((_HEAD, checksum_of(body).encode(), _MIDDLE, body, _TAIL))


def checksum_of(body: bytes) -> str:
    """Return the checksum that seals a decision."""
    return hashlib.sha256(body).hexdigest()


def sealed_checksum(data: bytes) -> str:
    """Return the checksum that stands in an encoded decision."""
    return data[len(_HEAD) : len(_HEAD) + _DIGITS].decode("ascii", "replace")


def check_seal(data: bytes, *, path: str) -> tuple[str, bytes]:
    """Return the checksum of a sealed decision, and its document as bytes.

    Raises:
        CorruptMetadataError: the checksum is that of other bytes.
    """
    start = len(_HEAD) + _DIGITS
    body = data[start + len(_MIDDLE) : -len(_TAIL)]
    shaped = (
        data.startswith(_HEAD)
        and data[start : start + len(_MIDDLE)] == _MIDDLE
        and data.endswith(_TAIL)
    )
    stated = sealed_checksum(data)
    computed = checksum_of(body)
    if not shaped or stated != computed:
        message = f"{path} is damaged: its checksum does not match its content"
        hint = "restore the file from a backup; `tablectl verify` lists all damage"
        raise CorruptMetadataError(message, hint=hint, path=path, expected=stated, found=computed)
    return stated, body


def unseal(data: bytes, *, path: str) -> tuple[str, dict[str, object]]:
    """Check the seal; return the checksum and the document."""
    stated, body = check_seal(data, path=path)
    try:
        document = load_document(body)
    except ValueError as error:
        raise CorruptMetadataError(f"{path} is not a decision: {error}", path=path) from error
    return stated, document


# --- records ------------------------------------------------------------------------------------

_RECORD_END: Final = re.compile(rb',"seal":"([0-9a-f]{16})"\}')
_RECORD_END_BYTES: Final = len(b',"seal":"0123456789abcdef"}')


class Proof(Enum):
    """What the bytes of a record prove."""

    SEALED = "sealed"
    """The bytes are what was written under this name."""
    UNSEALED = "unsealed"
    """The bytes have no seal: an older client wrote them, or they were changed."""
    DAMAGED = "damaged"
    """The bytes are not what was written under this name."""


def seal_record(path: str, document: Mapping[str, object]) -> bytes:
    """Return the bytes of a record, which has at least one field.

    >>> seal_record("a", {"version": 8})
    b'{"version":8,"seal":"385d16cee577e1a8"}'
    """
    body = json.dumps(document, separators=(",", ":")).encode()[:-1]
    return b"".join((body, b',"seal":"', _digest(path, body), b'"}'))


def open_record(path: str, body: bytes) -> tuple[Proof, dict[str, object]]:
    """Read a record; of one that is damaged nothing is given.

    >>> open_record("a", seal_record("b", {"version": 8}))
    (<Proof.DAMAGED: 'damaged'>, {})
    >>> open_record("a", b'{"version": 8}')
    (<Proof.UNSEALED: 'unsealed'>, {'version': 8})
    """
    found = _RECORD_END.fullmatch(body[-_RECORD_END_BYTES:])
    if found is not None and found[1] != _digest(path, body[:-_RECORD_END_BYTES]):
        return Proof.DAMAGED, {}
    try:
        require_shallow(body)
        document = json.loads(body)
    except (ValueError, RecursionError):
        return Proof.DAMAGED, {}
    if not isinstance(document, dict):
        return Proof.DAMAGED, {}
    return (Proof.UNSEALED if found is None else Proof.SEALED), document


def _digest(path: str, body: bytes) -> bytes:
    digest = xxhash.xxh64(path.encode())
    digest.update(b"\0")
    digest.update(body)
    return digest.hexdigest().encode()


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
        raise ValueError(f"{len(body)} bytes of JSON, and at most {bytes_max} are read")
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
        raise ValueError(f"{found} values and signs, and at most {nodes_max} are read")
    try:
        document = json.loads(body.decode(), parse_constant=_refuse, object_pairs_hook=unique)
    except RecursionError as error:
        raise ValueError("JSON is nested too deeply") from error
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
        raise ValueError(f"field {twice[:80]!r} occurs twice")
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
            raise ValueError(f"JSON is nested deeper than {depth_max} levels")


def _refuse(name: str) -> Never:
    raise ValueError(f"{name} is no number of JSON")
