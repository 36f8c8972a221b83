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


def test_sidecar_that_is_not_the_declared_one_is_refused_by_name(store: Store) -> None:
    write_sidecar(store, PATH, HASHES)
    for count in (0, 2, 4, -1, 2**60):
        with pytest.raises(CorruptMetadataError) as caught:
            load_sidecar(store, PATH, count=count)
        assert caught.value.path == PATH
    place = Path(store.location(PATH))
    whole = place.read_bytes()
    for at in range(len(whole)):
        place.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(CorruptMetadataError, match=PATH):
            load_sidecar(store, PATH, count=3)
    place.unlink()
    with pytest.raises(CorruptMetadataError, match=PATH):
        load_sidecar(store, PATH, count=3)
