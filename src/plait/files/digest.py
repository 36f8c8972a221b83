"""A digest of rows that does not depend on their order: their number, and the sum of their hashes.

The hash of a row is the mixed sum of what its columns give. A column gives the hash of the value
under a seed of its own name, so that equal values of two columns count differently, and nothing for
a null: a column that was added since, and is null, leaves the digest as it is. Values are hashed in
the table's types, by XXH64 as keys are (``files/hash.py``). Keys that are removed count too, under
seeds of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from plait.files.hash import Hashes, hash_into, mix
from plait.model.changes import Digest

_STEP = np.uint64(0x9E3779B97F4A7C15)
"""Tells the places of a list, and its length, from each other."""
_NONE = np.uint64(0)
_MASK = (1 << 64) - 1
_FEW = 16
_FIXED = {pa.bool_(): 4, pa.int8(): 4, pa.int16(): 4, pa.int32(): 4, pa.int64(): 8}
"""How many bytes of a value are hashed, as Spark does."""
_TEXTS = (pa.string(), pa.binary())
_SIMPLE = frozenset((*_FIXED, *_TEXTS))
_CAME, _REMOVED = 0, 1
"""Seeds: a removal of a key counts differently from a row that has nothing but its key."""


@dataclass(slots=True)
class Digester:
    """Sums up rows as they come by."""

    digest: Digest = field(default_factory=Digest)

    def add(self, batch: pa.RecordBatch, *, removes: bool = False) -> None:
        """Take rows in, whose columns have the table's types; or keys that are removed."""
        hashes = row_hashes(batch, seed=_REMOVED if removes else _CAME)
        total = int(hashes.sum(dtype=np.uint64))
        self.digest += Digest(batch.num_rows, total)


def digest_of(batches: Iterable[pa.RecordBatch], *, removes: bool = False) -> Digest:
    """Return the digest of rows whose columns have the table's types; or of removed keys."""
    digester = Digester()
    for batch in batches:
        digester.add(batch, removes=removes)
    return digester.digest


def row_hashes(batch: pa.RecordBatch, *, seed: int = 0, exact: bool = False) -> Hashes:
    """Return a hash of every row.

    Args:
        batch: rows whose columns have the table's types.
        seed: hashes of other seeds have nothing to do with these.
        exact: whether floats differ where their bits do; if not, both zeros are one, and so is
            every NaN.

    >>> one = pa.record_batch({"a": [1, 2], "b": ["x", None]})
    >>> two = pa.record_batch({"b": ["x", None], "a": [1, 2]})
    >>> row_hashes(one).tolist() == row_hashes(two).tolist()
    True
    """
    if batch.num_rows <= _FEW and _SIMPLE.issuperset(batch.schema.types):
        return _few_hashes(batch, seed)
    return _RowHasher(seed, exact).rows(batch.schema.names, batch.columns, batch.num_rows)


def _few_hashes(batch: pa.RecordBatch, seed: int) -> Hashes:
    """Return the same hashes, value by value: numpy costs more than a few values do."""
    totals = [0] * batch.num_rows
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        of_name, size = xxhash.xxh64_intdigest(name.encode(), seed=seed), _FIXED.get(column.type)
        values = (column if size else column.cast(pa.binary())).to_pylist()
        for at, value in enumerate(values):
            if value is not None:
                body = value if size is None else int(value).to_bytes(size, "little", signed=True)
                totals[at] += xxhash.xxh64_intdigest(body, seed=of_name)
    out = np.array([total & _MASK for total in totals], np.uint64)
    mix(out)
    return out


@dataclass(frozen=True, slots=True)
class _RowHasher:
    seed: int
    exact: bool

    def rows(self, names: list[str], columns: list[pa.Array], count: int) -> Hashes:
        out = np.zeros(count, np.uint64)
        for name, column in zip(names, columns, strict=True):
            out += self._values(column, xxhash.xxh64_intdigest(name.encode(), seed=self.seed))
        mix(out)
        return out

    def _values(self, array: pa.Array, seed: int) -> Hashes:
        """Hash the values of a column; nulls give nothing."""
        kind = array.type
        if array.null_count == len(array):
            return np.full(len(array), _NONE)
        out = np.full(len(array), seed, np.uint64)
        if pa.types.is_struct(kind):
            out += self.rows([child.name for child in kind.fields], array.flatten(), len(array))
            mix(out)
        elif pa.types.is_list(kind) or pa.types.is_map(kind):
            self._add_items(array, out)
            mix(out)
        elif pa.types.is_floating(kind):
            hash_into(bits(array) if self.exact else _plain_bits(array), out)
        else:
            hash_into(array, out)
        if array.null_count:
            out[array.is_null().to_numpy(zero_copy_only=False)] = _NONE
        return out

    def _add_items(self, array: pa.Array, out: Hashes) -> None:
        """Add what stands in each list, with its place and the length."""
        if pa.types.is_map(array.type):
            entry = pa.struct([array.type.key_field, array.type.item_field])
            array = array.cast(pa.list_(entry))
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy().astype(np.int64)
        parents = np.repeat(np.arange(len(array)), lengths)  # elements under a null have none
        items = self._values(pc.list_flatten(array), self.seed)
        places = np.arange(len(parents)) - (np.cumsum(lengths) - lengths)[parents]
        items += places.astype(np.uint64) * _STEP
        mix(items)
        np.add.at(out, parents, items)
        out += lengths.astype(np.uint64) * _STEP


def bits(array: pa.Array) -> pa.Array:
    """View floats as the integers of their bits."""
    return array.view(pa.int32() if pa.types.is_float32(array.type) else pa.int64())


def _plain_bits(array: pa.Array) -> pa.Array:
    """View floats as integers; every NaN is one, and so are both zeros."""
    wide = array.cast(pa.float64())
    values = wide.fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
    values = np.where(np.isnan(values), np.nan, values)
    return pa.array(values.view(np.int64))
