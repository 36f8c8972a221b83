"""Run files, merges and manifests of the record index: nothing is lost, and damage is found."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.errors import CorruptMetadataError, UnsupportedFeatureError
from plait.index.builder import RunBuilder
from plait.index.entries import IndexEntries, Places
from plait.index.lookup import Footers, find_entries
from plait.index.manifest import (
    IndexRun,
    Manifest,
    load_hinted,
    load_newest,
    publish_manifest,
)
from plait.index.merge import merged, write_files
from plait.index.run_file import BLOCK, OpenRun
from plait.storage import open_store
from plait.storage.port import Store
from plait.timeline import paths

NAME = "0123456789abcdef"
_NUMBERS = itertools.count()
# Few hashes, so that keys meet in several runs and partitions, and both ends of their range.
HASHES = st.sampled_from([0, 1, 2, 1 << 63, (1 << 64) - 1, *range(1 << 40, (1 << 40) + 20)])
RUNS = st.lists(
    st.lists(st.tuples(HASHES, st.sampled_from(["a", "b", "c"]), st.integers(0, 9))), max_size=4
)
Triples = dict[tuple[int, str], int]


def fresh() -> Store:
    return open_store(f"memory://run-files-{next(_NUMBERS)}")


def path_of(number: int, version: int = 1) -> str:
    return paths.index_run(NAME, version, "0" * 16, number)


def written(store: Store, entries: list[tuple[int, str, int]], version: int = 1, **more: int):
    with RunBuilder(**more) as builder:
        for hash_, text, by in entries:
            builder.add(np.array([hash_], np.uint64), text, by)
        return builder.write(store.filesystem(), lambda at: path_of(at, version))


def manifest_of(*runs: IndexRun, number: int = 0) -> Manifest:
    return Manifest(NAME, number, 0, 1, "0" * 64, runs)


def newest(entries: list[tuple[int, str, int]]) -> Triples:
    found: Triples = {}
    for hash_, text, version in entries:
        found[hash_, text] = max(version, found.get((hash_, text), 0))
    return found


def triples(entries: IndexEntries, places: Places) -> Triples:
    columns = (entries.hashes, entries.places, entries.versions)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    listed = [((hash_, places.texts[place]), version) for hash_, place, version in rows]
    assert len(dict(listed)) == len(listed), "an entry is there twice"
    return dict(listed)


@settings(deadline=None)
@given(RUNS, st.lists(HASHES, max_size=6), st.sampled_from([80, 400, 1 << 20]))
def test_look_up_of_runs_gives_the_newest_entry_of_each_partition(runs, wanted, memory) -> None:
    """INV-11: what was written is found, however little memory there was to sort it."""
    store = fresh()
    files = [written(store, run, at, memory_bytes=memory) for at, run in enumerate(runs)]
    manifest = manifest_of(*(IndexRun(0, 1, tuple(each)) for each in files if each))
    every, asked = (
        newest([entry for run in runs for entry in run]),
        np.unique(np.array(wanted, np.uint64)),
    )
    places = Places()
    found = triples(find_entries(store, manifest, asked, places, Footers()), places)
    assert found == {at: v for at, v in every.items() if at[0] in asked.tolist()}


@settings(deadline=None)
@given(RUNS, st.integers(1, 5))
def test_merged_runs_have_every_entry_once_in_order(runs, most) -> None:
    """INV-11: a merge loses nothing, whatever it holds at once."""
    store, places = fresh(), Places()
    files = [f for at, run in enumerate(runs) for f in written(store, run, at)]
    sources = [OpenRun(store.filesystem(), file) for file in files]
    chunks = list(merged(sources, places, most))
    entries = IndexEntries.concat(chunks)
    assert (entries.hashes[1:] >= entries.hashes[:-1]).all()
    assert triples(entries, places) == newest([entry for run in runs for entry in run])
    again = write_files(store.filesystem(), lambda at: path_of(at, 9), chunks, places, most=most)
    assert all(file.entries <= most for file in again)
    total = manifest_of(IndexRun(0, 1, tuple(again)))
    everything, told = np.unique(entries.hashes), Places()
    found = find_entries(store, total, everything, told, Footers())
    assert triples(found, told) == triples(entries, places)


def test_large_run_is_read_by_ranges_and_by_single_hashes(tmp_path, monkeypatch) -> None:
    """Hashes at the edges of blocks, and stretches of one hash over several blocks."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    written(fresh(), [(n, "a", 1) for n in range(50)], memory_bytes=800)
    assert list(tmp_path.iterdir()) == [], "local files are gone after a build"
    with pytest.raises(UnsupportedFeatureError) as caught:
        IndexEntries.of(np.zeros(1, np.uint64), 0, 1 << 32)
    assert caught.value.found == 1 << 32, "a version that an entry cannot name"
    store, rng = fresh(), np.random.default_rng(7)
    hashes = np.sort(rng.integers(0, 1 << 64, 3 * BLOCK + 5, dtype=np.uint64))
    hashes[BLOCK - 2 : 2 * BLOCK + 2] = hashes[BLOCK]
    hashes.sort()
    with RunBuilder() as builder:
        builder.add(hashes, "a", 3)
        for number in range(40):
            builder.add(hashes[BLOCK : BLOCK + 1], f"p{number}", 4)
        (file,) = builder.write(store.filesystem(), path_of)
    once = np.unique(hashes)
    with OpenRun(store.filesystem(), file) as run:
        assert np.array_equal(np.unique(IndexEntries.concat(run.all()).hashes), once)
        for at in (0, BLOCK - 3, BLOCK, len(once) - 1):
            found = run.find(once[min(at, len(once) - 1) :][:1])
            assert len(found) == (41 if found.hashes[0] == hashes[BLOCK] else 1)
        low, high = int(once[10]), int(once[-10])
        part = run.between(low, high)
        inside = (once >= np.uint64(low)) & (once < np.uint64(high))
        assert np.array_equal(np.unique(part.hashes), once[inside])
        assert not len(run.find(np.array([5], np.uint64)))


def test_damage_of_any_byte_is_found_or_changes_nothing() -> None:
    """INV-11: a wrong entry would hide a row."""
    store = fresh()
    (file,) = written(store, [(n << 50, "p", n) for n in range(1, 9)])
    body = store.find(file.path)
    assert body is not None
    with OpenRun(store.filesystem(), file) as run:
        right = triples(IndexEntries.concat(run.all()), Places(list(run.footer.places)))
    for at in range(8, len(body)):  # the first eight bytes are for people
        store.put(file.path, body[:at] + bytes([body[at] ^ 0x41]) + body[at + 1 :])
        with pytest.raises(CorruptMetadataError), OpenRun(store.filesystem(), file) as run:
            IndexEntries.concat(run.all())
    for size in (0, 7, len(body) - 1):
        store.put(file.path, body[:size])
        with pytest.raises(CorruptMetadataError):
            OpenRun(store.filesystem(), file)
    store.put(file.path, body)
    with OpenRun(store.filesystem(), file) as run:
        assert triples(IndexEntries.concat(run.all()), Places(list(run.footer.places))) == right


def test_hint_that_is_wrong_costs_a_listing_only() -> None:
    """INV-02 of indexes: of manifests with one number the first counts. INV-11: so do hints."""
    store = fresh()
    one = manifest_of(IndexRun(0, 1, tuple(written(store, [(1, "a", 1)], 1))))
    two = manifest_of(IndexRun(0, 1, tuple(written(store, [(2, "a", 1)], 2))))
    assert publish_manifest(store, one)
    assert not publish_manifest(store, two)
    assert load_newest(store, NAME) == load_hinted(store, NAME) == one
    for hint in (b"", b"x", b"\xff\xfe", f"{NAME} 77".encode(), b"0 0"):
        store.put(paths.INDEX_HINT, hint)
        assert load_hinted(store, NAME) == one
    store.delete([paths.INDEX_HINT])
    assert load_hinted(store, NAME) == one


def test_damaged_manifest_is_as_if_it_was_not_there() -> None:
    """INV-11: the one before it is right as well."""
    store = fresh()
    first, second = manifest_of(), manifest_of(number=1)
    assert publish_manifest(store, first)
    assert publish_manifest(store, second)
    path = paths.index_manifest(NAME, 1)
    body = store.find(path)
    assert body is not None
    for damaged in (body[:-1], body.replace(b"runs", b"ruins"), b"[]", b"{}"):
        store.put(path, damaged)
        assert load_newest(store, NAME) == first
        with pytest.raises(CorruptMetadataError):
            Manifest.parse(damaged, path)
    store.put(path, first.to_bytes())  # that of another number
    assert load_newest(store, NAME) == first
