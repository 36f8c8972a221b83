"""Sidecars of key hashes: whole, in order, and no larger than declared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from plait.errors import CorruptMetadataError
from plait.files.hash import load_sidecar, write_sidecar
from plait.storage.port import Store

PATH = "data/keys.bin"
HASHES = np.array([7, 2**64 - 1, 0, 7], dtype=np.uint64)


def test_sidecar_gives_back_sorted_distinct_hashes(store: Store) -> None:
    assert write_sidecar(store, PATH, HASHES) == 3
    assert load_sidecar(store, PATH, count=3).tolist() == [0, 7, 2**64 - 1]


@pytest.mark.parametrize("count", [0, 2, 4, -1, 2**60])
def test_sidecar_of_another_size_than_declared_is_refused(store: Store, count: int) -> None:
    write_sidecar(store, PATH, HASHES)
    with pytest.raises(CorruptMetadataError) as caught:
        load_sidecar(store, PATH, count=count)
    assert caught.value.path == PATH


@pytest.mark.parametrize("at", [0, 9, 20, 30, -1])
def test_damaged_sidecar_is_refused_by_name(store: Store, at: int) -> None:
    write_sidecar(store, PATH, HASHES)
    place = Path(store.location(PATH))
    body = bytearray(place.read_bytes())
    body[at] ^= 1
    place.write_bytes(body)
    with pytest.raises(CorruptMetadataError, match=PATH):
        load_sidecar(store, PATH, count=3)


def test_missing_sidecar_is_refused_by_name(store: Store) -> None:
    with pytest.raises(CorruptMetadataError, match=PATH):
        load_sidecar(store, PATH, count=3)
