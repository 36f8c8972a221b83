"""The seal of a decision: a checksum beside its bytes.

    {"checksum":"<sha256 of what follows>",
    "decision":{...}}

The checksum covers the exact bytes of the second part, and the decision names the checksum of
the one before, so that a timeline is a chain.
"""

from __future__ import annotations

import hashlib
import json

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
        document = json.loads(body, object_pairs_hook=unique)
        if not isinstance(document, dict):
            raise TypeError(document)
    except (TypeError, ValueError, RecursionError) as error:
        message = f"{path} is not a decision: {error}"
        raise CorruptMetadataError(message, path=path) from error
    return stated, document


def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Make an object of JSON; raise ValueError if it names a field twice: readers would differ."""
    document = dict(pairs)
    if len(document) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        message = f"field {twice[:80]!r} occurs twice"
        raise ValueError(message)
    return document
