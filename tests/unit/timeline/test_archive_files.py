"""Files of the archive hold what was in the slots, or the damage is named (INV-01)."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.errors import CorruptMetadataError, InvariantError
from plait.model.document import seal
from plait.model.instant import Instant
from plait.storage.memory import MemoryStore
from plait.testing.wrapper import WrappedStore
from plait.timeline import paths
from plait.timeline.archive import BODIES, Archive, load_archive, write_archive
from tests.support.effort import share
from tests.support.protocol import memory

NOBODY = Instant.at(0, "0" * 16)
OTHER = Instant.at(1, "1" * 16)


def bodies(first: int, count: int) -> list[bytes]:
    return [
        seal(b'{"version":%d,"text":"%s"}' % (n, b"x" * n)) for n in range(first, first + count)
    ]


def put(store: MemoryStore, name: str, versions: list[int], found: list[bytes | None]) -> None:
    sink = pa.BufferOutputStream()
    schema = pa.schema([("version", pa.int64()), ("body", pa.binary())])
    pq.write_table(pa.table([versions, found], schema=schema), sink)
    store.put(name, sink.getvalue().to_pybytes())


def test_what_was_written_is_read_and_its_entry_tells_its_bytes() -> None:
    store, written = memory(), bodies(7, 20)
    file = write_archive(store, NOBODY, 7, written)
    body = store.find(file.path) or b""
    assert load_archive(store, file.path, sha256=file.sha256) == written
    assert (file.first, file.last, file.rows) == (7, 26, 20)
    assert file.bytes == sum(map(len, written))
    assert file.sha256 == hashlib.sha256(body).hexdigest()
    with pytest.raises(CorruptMetadataError):
        load_archive(store, file.path, sha256="0" * 64)


@pytest.mark.slow
def test_a_decision_that_packs_very_well_is_still_read() -> None:
    """What a reader believes a few bytes may become is bounded."""
    store, large = memory(), [seal(b'{"text":"' + b"x" * (40 << 20) + b'"}')]
    assert load_archive(store, write_archive(store, NOBODY, 0, large).path) == large


def test_a_name_that_is_taken_is_never_written_over() -> None:
    store = memory()
    write_archive(store, NOBODY, 0, bodies(0, 2))
    with pytest.raises(InvariantError):
        write_archive(store, NOBODY, 0, bodies(0, 2))


class Torn(WrappedStore):
    """Stores less than it is given, and does not say so."""

    def put_if_absent(self, path: str, body: bytes) -> bool:
        return self.inner.put_if_absent(path, body[: len(body) // 2])


def test_a_file_that_was_not_stored_whole_is_never_named() -> None:
    """INV-01: it is read back, since slots are emptied for it."""
    with pytest.raises(CorruptMetadataError):
        write_archive(Torn(memory()), NOBODY, 0, bodies(0, 3))


CHANGES = st.lists(
    st.tuples(st.integers(0, 1 << 20), st.integers(0, 7), st.integers(0, 40)),
    min_size=1,
    max_size=4,
)


@settings(max_examples=share(300))
@given(changes=CHANGES)
def test_any_changed_bytes_give_the_same_decisions_or_an_error_that_names_the_file(
    changes: list[tuple[int, int, int]],
) -> None:
    store, written = memory(), bodies(0, 30)
    path = write_archive(store, NOBODY, 0, written).path
    body = bytearray(store.find(path) or b"")
    for place, bit, cut in changes:
        at = place % len(body)
        body[at] ^= 1 << bit
        del body[at + 1 : at + 1 + max(0, cut - 20)]
    store.put(path, bytes(body))
    found: list[bytes] | None = None
    try:
        found = load_archive(store, path)
    except CorruptMetadataError as error:
        named = error.path
    assert found == written if found is not None else named == path


@pytest.mark.parametrize(
    ("versions", "found"),
    [
        ([0, 1], bodies(0, 2)),
        ([0, 2, 1], bodies(0, 3)),
        ([1, 2, 3], bodies(0, 3)),
        ([0, 1, 2], [*bodies(0, 2), b"not a decision"]),
        ([0, 1, 2], [*bodies(0, 2), bodies(2, 1)[0][:-1]]),
        ([0, 1, 2], [*bodies(0, 2), None]),
    ],
    ids=["fewer", "mixed", "others", "rubbish", "cut", "null"],
)
def test_a_file_that_is_not_what_its_name_says_is_refused(
    versions: list[int], found: list[bytes | None]
) -> None:
    store, path = memory(), paths.archive(0, 2, NOBODY)
    put(store, path, versions, found)
    with pytest.raises(CorruptMetadataError) as caught:
        load_archive(store, path)
    assert caught.value.path == path


def test_of_two_files_with_a_version_the_one_that_is_whole_is_read() -> None:
    store = memory()
    first = write_archive(store, NOBODY, 0, bodies(0, 4))
    write_archive(store, OTHER, 0, bodies(0, 8))
    store.put(first.path, b"damaged")
    archive = Archive(store)
    assert archive.find(2) == bodies(2, 6)
    assert archive.find(7) == bodies(7, 1)
    assert archive.find(8) == []


def test_only_names_of_the_right_form_are_files_of_the_archive() -> None:
    name = paths.archive(3, 9, NOBODY)
    assert paths.archive_of(name) == (3, 9, NOBODY)
    for other in (name.replace("/archive/", "/archived/"), name + "x", paths.archive(9, 3, NOBODY)):
        assert paths.archive_of(other) is None
    assert BODIES.names == ["version", "body"]


def test_the_decision_after_those_of_the_file_that_is_held_is_in_the_next_one() -> None:
    store = memory()
    write_archive(store, NOBODY, 0, bodies(0, 4))
    write_archive(store, NOBODY, 4, bodies(4, 4))
    archive = Archive(store)
    assert archive.find(3) == bodies(3, 1)
    assert archive.find(4) == bodies(4, 4)
    assert archive.find(0) == bodies(0, 4)


def test_a_path_that_is_no_file_of_the_archive_is_never_read() -> None:
    store, path = memory(), f"{paths.ARCHIVE}/else.parquet"
    put(store, path, [0], list(bodies(0, 1)))
    with pytest.raises(CorruptMetadataError) as caught:
        load_archive(store, path)
    assert caught.value.path == path
