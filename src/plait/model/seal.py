"""Seals: checksums beside the bytes of decisions, and of records of work under way.

A decision::

    {"checksum":"<sha256 of what follows>",
    "decision":{...}}

The checksum covers the exact bytes of the second part, and the decision names the checksum of
the one before, so that a timeline is a chain.

A record under ``.meta`` is named by no decision, so nothing else tells whether it is whole, or that
of another name. It is JSON whose last field covers its path and all fields before. Whoever reads
one that does not prove itself takes the most careful view of what its name alone says (RFC 0036).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from enum import Enum
from typing import Final

import xxhash

from plait.errors import CorruptMetadataError
from plait.model.bounded_json import load_document, require_shallow

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
        message = f"{path} is not a decision: {error}"
        raise CorruptMetadataError(message, path=path) from error
    return stated, document


# --- records ------------------------------------------------------------------------------------

_RECORD_END: Final = re.compile(rb',"seal":"([0-9a-f]{16})"\}')
_RECORD_END_BYTES: Final = len(b',"seal":"0123456789abcdef"}')


class Proof(Enum):
    """What the bytes of a record prove."""

    SEALED = "sealed"
    """They are what was written under this name."""
    UNSEALED = "unsealed"
    """Nothing: an older client wrote them, or they were changed."""
    DAMAGED = "damaged"
    """They are not what was written under this name."""


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
