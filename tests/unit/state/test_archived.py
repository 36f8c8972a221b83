"""What a decision says of the archive is believed if it goes on from what is there (INV-01)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plait.definition.features import ARCHIVE
from plait.errors import CorruptMetadataError
from plait.model.decision import ArchiveFile, Decision
from plait.model.instant import Instant
from plait.state.lineage import Archived
from plait.timeline import paths
from tests.support.forge import decision_at
from tests.support.protocol import create, memory

NOBODY = Instant.at(0, "0" * 16)
VERSION = 9


def file(first: int, last: int) -> ArchiveFile:
    return ArchiveFile(paths.archive(first, last, NOBODY), first, last, 10, "0" * 64)


def decision(*files: ArchiveFile) -> Decision:
    """Make a decision at version 9 that names files of the archive."""
    store = memory()
    create(store)
    return replace(decision_at(store, 0), version=VERSION, archived=files)


BEFORE = Archived((file(0, 3), file(4, 6)))


@pytest.mark.parametrize(
    "files",
    [(file(0, 6),), (file(0, 3), file(4, 7)), (file(0, 3), file(4, 6), file(7, VERSION - 1))],
    ids=["merged", "replaced", "longer"],
)
def test_an_archive_goes_on_from_what_is_archived(files: tuple[ArchiveFile, ...]) -> None:
    after = BEFORE.after(decision(*files), where="here")
    assert after.files == files
    assert after.last == files[-1].last


@pytest.mark.parametrize(
    "files",
    [(file(0, 3),), (file(0, 5),), (file(0, VERSION),), (file(0, 3), file(4, VERSION + 1))],
    ids=["fewer", "less", "itself", "later"],
)
def test_an_archive_that_leaves_versions_out_or_names_later_ones_is_damage(
    files: tuple[ArchiveFile, ...],
) -> None:
    with pytest.raises(CorruptMetadataError) as caught:
        BEFORE.after(decision(*files), where="here")
    error = caught.value
    assert error.path == "here"
    assert (error.facts["expected"], error.facts["found"]) == (6, files[-1].last)


def test_a_decision_that_names_no_archive_leaves_it_as_it_is() -> None:
    """The feature is needed from the first archive on, and a checkpoint tells it as it was."""
    assert BEFORE.after(decision(), where="here") is BEFORE
    assert (Archived().last, Archived().features) == (-1, ())
    assert BEFORE.features == (ARCHIVE,)
    assert Archived.from_list(BEFORE.to_list()) == BEFORE
    for nonsense in (None, [[1]], [file(1, 3).to_list()]):
        with pytest.raises((TypeError, ValueError)):
            Archived.from_list(nonsense)
