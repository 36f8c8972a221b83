"""Row positions as 64-bit Roaring bitmaps, in the portable layout.

Source: RoaringFormatSpec, "general layout" and "extension for 64-bit implementations". Writing is
left to CRoaring. Reading is done here, in numpy, because the bytes are untrusted: CRoaring reads
positions that are out of order or repeated. Every length is checked before it is used, and nothing
is expanded before the declared counts were found to fit.
"""

from __future__ import annotations

import array
from typing import Final, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt
import pyroaring

Positions: TypeAlias = npt.NDArray[np.uint64]

ROWS_A_CONTAINER: Final = 1 << 16
CONTAINER_BYTES_MAX: Final = 2 + 4 * (1 << 15) + 12
"""A container of runs, and its place in the head."""

_NO_RUNS: Final = 12346
_WITH_RUNS: Final = 12347
_OFFSETS_FROM: Final = 4  # with runs, offsets are there from so many containers on
_ARRAY_MAX: Final = 4096  # values; larger containers without runs are bit sets
_BITSET_BYTES: Final = 8192
_CONTAINERS_MAX: Final = 1 << 16
_KEY_BITS: Final = 32
_KEYS_MAX: Final = 1 << 31  # positions are positive in 64 bits with a sign


def encode(positions: Positions) -> bytes:
    """Write row positions, in any order.

    >>> encode(np.array([1], dtype=np.uint64)).hex()
    '0100000000000000000000003a3000000100000000000000100000000100'
    """
    bitmap = pyroaring.BitMap64(array.array("Q", positions.astype(np.uint64).tobytes()))
    bitmap.run_optimize()
    body: bytes = bitmap.serialize()
    return body


def decode(body: bytes, *, count: int) -> Positions:
    """Read row positions, sorted.

    Args:
        body: untrusted bytes.
        count: how many positions there are; no more are expanded.

    Raises:
        ValueError: the bytes are not a bitmap of exactly so many positions.
    """
    source = _BitmapSource(body)
    bitmaps = source.number("<u8")
    parts: list[Positions] = []
    left, before = count, -1
    for _ in range(min(bitmaps, _KEYS_MAX)):
        key = source.number("<u4")
        if not before < key < _KEYS_MAX:
            _refuse(f"key {key} after {before}")
        before = key
        for part in _decode_32(source, left):
            parts.append(part.astype(np.uint64) + np.uint64(key << _KEY_BITS))
            left -= len(part)
    if source.left or left:
        _refuse(f"{source.left} bytes and {left} positions left over")
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint64)


class _BitmapSource:
    """Takes numbers from bytes and never reads beyond them."""

    def __init__(self, body: bytes) -> None:
        self._body = memoryview(body)
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._body) - self._at

    def numbers(self, kind: str, count: int) -> npt.NDArray[np.int64]:
        """Take ``count`` numbers, widened to int64."""
        width = np.dtype(kind).itemsize
        if count * width > self.left:
            _refuse(f"{count * width} bytes where {self.left} are left")
        values = np.frombuffer(self._body, dtype=kind, count=count, offset=self._at)
        self._at += count * width
        return values.astype(np.int64)

    def number(self, kind: str) -> int:
        """Take one number without a sign."""
        width = np.dtype(kind).itemsize
        return int.from_bytes(self.numbers("u1", width).astype(np.uint8).tobytes(), "little")


def _decode_32(source: _BitmapSource, left: int) -> list[npt.NDArray[np.int64]]:
    """Read one 32-bit bitmap: the positions of each of its containers."""
    cookie = source.number("<u4")
    if cookie & 0xFFFF == _WITH_RUNS:
        size = (cookie >> 16) + 1
        bits = source.numbers("u1", (size + 7) // 8).astype(np.uint8)
        runs = np.unpackbits(bits, bitorder="little", count=size).astype(bool)
        has_offsets = size >= _OFFSETS_FROM
    elif cookie == _NO_RUNS:
        size = source.number("<u4")
        if size > _CONTAINERS_MAX:
            _refuse(f"{size} containers")
        runs, has_offsets = np.zeros(size, dtype=bool), True
    else:
        _refuse(f"cookie {cookie}")
    head = source.numbers("<u2", 2 * size).reshape(-1, 2)
    keys, counts = head[:, 0], head[:, 1] + 1
    if bool((keys[1:] <= keys[:-1]).any()) or int(counts.sum()) > left:
        _refuse("containers out of order, or more positions than declared")
    if has_offsets:
        source.numbers("<u4", size)  # only needed to skip containers
    return [
        _container(source, int(count), is_run=bool(run)) + (int(key) << 16)
        for key, count, run in zip(keys, counts, runs, strict=True)
    ]


def _container(source: _BitmapSource, count: int, *, is_run: bool) -> npt.NDArray[np.int64]:
    if is_run:
        pairs = source.numbers("<u2", 2 * source.number("<u2")).reshape(-1, 2)
        starts, lengths = pairs[:, 0], pairs[:, 1] + 1
        ends = starts + lengths
        if bool((starts[1:] < ends[:-1]).any()) or bool((ends > _CONTAINERS_MAX).any()):
            _refuse("runs out of order")
        if int(lengths.sum()) != count:
            _refuse(f"runs of {int(lengths.sum())} positions where {count} are declared")
        before = np.cumsum(lengths) - lengths
        expanded: npt.NDArray[np.int64] = np.arange(count) + np.repeat(starts - before, lengths)
        return expanded
    if count <= _ARRAY_MAX:
        sparse = source.numbers("<u2", count)
        if bool((sparse[1:] <= sparse[:-1]).any()):
            _refuse("positions out of order")
        return sparse
    bits = source.numbers("u1", _BITSET_BYTES).astype(np.uint8)
    values = np.flatnonzero(np.unpackbits(bits, bitorder="little")).astype(np.int64)
    if len(values) != count:
        _refuse(f"a bit set of {len(values)} positions where {count} are declared")
    return values


def _refuse(found: str) -> NoReturn:
    raise ValueError(f"not a portable 64-bit Roaring bitmap: {found}")
