"""Avro's encodings, read from many records at once: one step reads one field of all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_PAD: Final = 16
"""Zeros behind the last record, so that no step reads beyond the memory."""
_MORE: Final = 0x80
_LAST_SHIFT: Final = 63
_EMPTY: Final[Ints] = np.empty(0, np.int64)
_REASON_MAX: Final = 300
_SMALL: Final[Ints] = np.array([(n >> 1) ^ -(n & 1) for n in range(_MORE)])
"""The numbers that have one byte."""


STEPS_BYTE: Final = 16
"""Steps for each byte of a record: values with bytes take one to three, deeply nested ones more."""
STEPS_RECORD: Final = 1024
"""Steps for each record beside."""
STEPS_PART: Final = 2
"""Steps for each part of a schema: a null and a record have no bytes of their own."""


class SpentError(ValueError):
    """Records take more steps than their bytes allow."""


@dataclass(slots=True)
class Budget:
    """How much work may be done for some records, by how many bytes they have.

    A schema may say that a few bytes are a great many values: of null, of records of nothing, and
    of both again within each other. So every value that is read, passed over or walked costs a
    step, and each item of a list without bytes costs ``STEPS_BYTE``. So items of no bytes are never
    more than the bytes of the records, and ``STEPS_RECORD / STEPS_BYTE`` for each.
    """

    left: int

    @classmethod
    def of(cls, lengths: Ints) -> Self:
        """Return the budget of records of these lengths."""
        return cls(STEPS_BYTE * int(lengths.sum()) + STEPS_RECORD * len(lengths))

    def spend(self, steps: int = 1) -> None:
        """Take steps; raise SpentError if there are none left."""
        self.left -= steps
        if self.left < 0:
            raise SpentError("it has far more values than bytes")


class Spans(NamedTuple):
    """Where some bytes of each record lie."""

    starts: Ints
    lengths: Ints


class Cursors:
    """Where each of some records is read next.

    Every step takes the numbers of the records that it reads, in ascending order, and moves their
    cursors. A record in which a step fails is refused: its cursor goes to its end, and what
    steps return for it means nothing.
    """

    def __init__(self, body: bytes, at: Ints, end: Ints, budget: Budget) -> None:
        """Read what lies between two places for each record, in ascending order."""
        self.body, self.budget = body, budget
        self.data: Bytes = np.frombuffer(body, np.uint8)
        self.at, self.end = at, end
        self.refused: dict[int, str] = {}
        self._sound = np.ones(len(at), dtype=np.bool_)

    @classmethod
    def of(cls, values: Iterable[bytes], lengths: Ints) -> Self:
        """Begin at the first byte of each value."""
        end: Ints = np.cumsum(lengths)
        body = b"".join([*values, bytes(_PAD)])
        return cls(body, end - lengths, end, Budget.of(lengths))

    def refuse(self, rows: Ints, reason: str) -> None:
        """Give records up; the first reason of each counts."""
        for row in rows[self._sound[rows]].tolist():
            self.refused[row] = reason[:_REASON_MAX]
        self._sound[rows] = False
        self.at[rows] = self.end[rows]

    def sound(self, rows: Ints) -> npt.NDArray[np.bool_]:
        """Tell which records were not refused."""
        return self._sound[rows]

    def left(self, rows: Ints) -> Ints:
        """Return how many bytes are left of records."""
        return self.end[rows] - self.at[rows]

    def longs(self, rows: Ints) -> Ints:
        """Read a number of each: seven bits a byte, the lowest first, the sign in the lowest."""
        at = self.at[rows]
        first = self.data[at]
        if not len(first) or first.max() < _MORE:  # lengths and branches mostly are
            self._move(rows, np.int64(1))
            return _SMALL[first]
        raw = (first & (_MORE - 1)).astype(np.uint64)
        used = np.ones(len(rows), dtype=np.int64)
        wide = np.flatnonzero(first >= _MORE)
        wrong = _EMPTY
        shift = 7
        while len(wide):
            byte = self.data[at[wide] + used[wide]]
            raw[wide] |= (byte & (_MORE - 1)).astype(np.uint64) << np.uint64(shift)
            used[wide] += 1
            if shift == _LAST_SHIFT:
                wrong = wide[byte > 1]
                break
            wide = wide[byte >= _MORE]
            shift += 7
        self._move(rows, used)
        if len(wrong):
            self.refuse(rows[wrong], "a number has more than 64 bits")
        signs = (raw & np.uint64(1)).astype(np.int64)
        return (raw >> np.uint64(1)).astype(np.int64) ^ -signs

    def numbers(self, rows: Ints, kind: np.dtype[np.floating]) -> pa.Array:
        """Read a floating-point number of each."""
        width = kind.itemsize
        places = self.spans_of(rows, width).starts
        windows = np.ndarray(
            (len(self.data) - width + 1,), kind.newbyteorder("<"), self.data, strides=(1,)
        )
        return pa.array(windows[places].astype(kind))

    def booleans(self, rows: Ints) -> pa.Array:
        """Read a boolean of each."""
        values = self.data[self.spans_of(rows, 1).starts]
        wrong = values > 1
        if wrong.any():
            self.refuse(rows[wrong], "a boolean is neither 0 nor 1")
        return pa.array(values == 1)

    def spans(self, rows: Ints) -> Spans:
        """Pass over bytes with their length before them."""
        return self.spans_of(rows, self.longs(rows))

    def spans_of(self, rows: Ints, lengths: Ints | int) -> Spans:
        """Pass over bytes of known lengths."""
        sizes = np.broadcast_to(np.asarray(lengths, np.int64), len(rows))
        wrong = (sizes < 0) | (sizes > self.left(rows))
        if wrong.any():
            self.refuse(rows[wrong], "the value ends too early")
            sizes = np.where(wrong, 0, sizes)
        starts = self.at[rows]
        self.at[rows] = starts + sizes
        return Spans(starts, sizes)

    def binary(self, spans: Spans) -> pa.Array:
        """Return the bytes of spans, which lie in ascending order."""
        count = len(spans.starts)
        if not count:
            return pa.array([], pa.binary())
        # What lies between two spans is an element too; every second one is taken.
        ends = np.column_stack([spans.starts, spans.starts + spans.lengths]).astype(np.int32)
        buffers = [None, pa.py_buffer(ends.ravel()), pa.py_buffer(self.body)]
        every = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
        return every.take(pa.array(np.arange(count) * 2))

    def wide_numbers(self, rows: Ints, spans: Spans) -> pa.Buffer:
        """Return big-endian numbers of up to 16 bytes, each in 16 bytes, little-endian."""
        width = 16
        starts, lengths = spans
        empty = lengths == 0
        if empty.any():
            self.refuse(rows[empty], "a decimal has no digits")
        negative = (self.data[starts] >= _MORE) & ~empty
        fill = np.where(negative, 0xFF, 0).astype(np.uint8)
        for at in np.flatnonzero(lengths > width).tolist():
            lead = self.data[starts[at] : starts[at] + lengths[at] - width]
            body = self.data[starts[at] + lengths[at] - width] >= _MORE
            if (lead != fill[at]).any() or body != negative[at]:
                self.refuse(rows[at : at + 1], "a decimal has more than 38 digits")
        back = np.arange(width)
        places = (starts + lengths - 1)[:, None] - back
        known = back < lengths[:, None]
        digits = np.where(known, self.data[np.where(known, places, 0)], fill[:, None])
        return pa.py_buffer(np.ascontiguousarray(digits))

    def finish(self) -> None:
        """Refuse the records that have bytes left."""
        more = np.flatnonzero(self.at < self.end)
        if len(more):
            self.refuse(more, "bytes are left after the value: it has another schema")

    def _move(self, rows: Ints, by: Ints | np.int64) -> None:
        moved = self.at[rows] + by
        self.at[rows] = moved
        over = moved > self.end[rows]
        if over.any():
            self.refuse(rows[over], "the value ends too early")
