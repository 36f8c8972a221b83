"""Records that prove themselves: JSON whose last field covers its name and all fields before it.

A record under ``.meta`` is not named by a decision, so nothing else tells whether it is whole, or
that of another name. Whoever reads one that does not prove itself takes the most careful view of
what its name alone says (RFC 0036).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import Enum
from typing import Final

import xxhash

from plait.model.bounded_json import require_shallow

_SEAL: Final = re.compile(rb',"seal":"([0-9a-f]{16})"\}')
_TAIL: Final = len(b',"seal":"0123456789abcdef"}')


class Proof(Enum):
    """What the bytes of a record prove."""

    SEALED = "sealed"
    """They are what was written under this name."""
    UNSEALED = "unsealed"
    """Nothing: an older client wrote them, or they were changed."""
    DAMAGED = "damaged"
    """They are not what was written under this name."""


def sealed(path: str, document: Mapping[str, object]) -> bytes:
    """Return the bytes of a record, which has at least one field.

    >>> sealed("a", {"version": 8})
    b'{"version":8,"seal":"385d16cee577e1a8"}'
    """
    body = json.dumps(document, separators=(",", ":")).encode()[:-1]
    return b"".join((body, b',"seal":"', _digest(path, body), b'"}'))


def unsealed(path: str, body: bytes) -> tuple[Proof, dict[str, object]]:
    """Read a record; of one that is damaged nothing is given.

    >>> unsealed("a", sealed("b", {"version": 8}))
    (<Proof.DAMAGED: 'damaged'>, {})
    >>> unsealed("a", b'{"version": 8}')
    (<Proof.UNSEALED: 'unsealed'>, {'version': 8})
    """
    found = _SEAL.fullmatch(body[-_TAIL:])
    if found is not None and found[1] != _digest(path, body[:-_TAIL]):
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
