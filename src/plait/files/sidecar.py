"""Which keys a decision touched: sorted, unique 64-bit hashes, inline or in a sidecar file.

The checksum of a sidecar covers its name too (RFC 0036). So one that is whole, but was written for
another decision, is refused: a writer that took it for its own would miss a conflict.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import xxhash

from plait.errors import CorruptMetadataError
from plait.files.data_file import own_name
from plait.files.hash import Hashes, sorted_once
from plait.storage.port import Store, check_path

INLINE_KEYS_MAX: Final = 512
"""Up to so many keys stand in the decision itself: 4 KiB."""

_MAGIC = b"PLTK\x02\x00\x00\x00"
_HEAD = struct.Struct("<8sQQ")  # magic and format version, key count, XXH64 of name and hashes
_WIDTH = 8


def encode_hashes(hashes: Hashes) -> bytes:
    """Sort hashes, drop repetitions, and write them as little-endian uint64.

    >>> encode_hashes(np.array([2, 1, 2], dtype=np.uint64)).hex()
    '01000000000000000200000000000000'
    """
    return sorted_once(hashes).astype("<u8", copy=False).tobytes()


def decode_hashes(body: bytes, *, path: str = "a decision") -> Hashes:
    """Read what ``encode_hashes`` wrote, without a copy.

    Raises:
        CorruptMetadataError: the hashes are cut off, out of order or repeated.
    """
    if len(body) % _WIDTH:
        raise _corrupt(path, f"a multiple of {_WIDTH} bytes", str(len(body)))
    hashes = np.frombuffer(body, dtype="<u8")
    if len(hashes) > 1 and not bool((hashes[1:] > hashes[:-1]).all()):
        raise _corrupt(path, "rising key hashes", "hashes out of order")
    return hashes


def write_sidecar(store: Store, path: str, hashes: Hashes) -> int:
    """Write a sidecar under a name of its own and return the number of keys in it.

    It is a data file: not durable before ``store.persist``.
    """
    body = encode_hashes(hashes)
    count = len(body) // _WIDTH
    with store.filesystem().open_output_stream(check_path(path)) as sink:
        sink.write(_HEAD.pack(_MAGIC, count, _digest(path, body)))
        sink.write(body)
    return count


def load_sidecar(store: Store, path: str, *, count: int) -> Hashes:
    """Read a sidecar that a decision names.

    Args:
        store: the table's.
        path: from the decision.
        count: the number of keys that the decision declares; no more is read.

    Raises:
        CorruptMetadataError: it is gone, damaged, or not of that size.
    """
    size = _HEAD.size + count * _WIDTH
    data = store.find(check_path(path), size_max=size)
    if data is None:
        raise _corrupt(path, f"{count} key hashes", "no file")
    if len(data) != size or count < 0:
        raise _corrupt(path, f"{size} bytes", f"{len(data)} bytes")
    magic, stored_count, digest = _HEAD.unpack_from(data)
    body = memoryview(data)[_HEAD.size :]
    if magic != _MAGIC or stored_count != count:
        raise _corrupt(path, f"the head of {count} key hashes", data[: _HEAD.size].hex())
    if _digest(path, body) != digest:
        raise _corrupt(path, f"checksum {digest:016x}", "another one")
    return decode_hashes(bytes(body), path=path)


def _digest(path: str, body: bytes | memoryview) -> int:
    digest = xxhash.xxh64(own_name(path).encode())
    digest.update(body)
    return digest.intdigest()


def _corrupt(path: str, expected: str, found: str) -> CorruptMetadataError:
    message = f"the key hashes of {path} are damaged: expected {expected}, found {found}"
    hint = "run tablectl verify"
    return CorruptMetadataError(message, hint=hint, path=path, expected=expected, found=found)
