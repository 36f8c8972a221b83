"""Processes killed at any moment of a write: the file is whole or absent, and nobody is blocked."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest

from plait.ports import SystemClock, SystemIds
from plait.storage.local import LocalStore
from plait.storage.race import body_of, is_whole
from tests.services.forked import Forked

KILLS = 24


def write_on(root: str, *, nameless: bool, verb: str) -> None:
    """Write slot after slot until killed."""
    store = LocalStore(root, nameless=nameless)
    write = getattr(store, verb)
    store.find("x")
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    for number in range(1_000_000):
        write(f"slots/{number // 50:05d}/{number:07d}", body_of(str(number)))


def kill_a_writer(root: Path, *, nameless: bool, verb: str) -> None:
    with Forked(partial(write_on, str(root), nameless=nameless, verb=verb)) as writer:
        writer.hear()
        SystemClock().sleep(SystemIds().jitter() * 0.05)


@pytest.mark.long(1)
@pytest.mark.processes
@pytest.mark.parametrize(
    ("nameless", "verb"), [(True, "put_if_absent"), (False, "put_if_absent"), (False, "put")]
)
def test_a_writer_killed_at_any_moment_leaves_whole_files_or_none(
    tmp_path: Path, nameless: bool, verb: str
) -> None:
    """INV-02: whoever comes next finds the slot taken by whole content, or free."""
    kills = KILLS if verb == "put_if_absent" and nameless else KILLS // 4
    for number in range(kills):
        root = tmp_path / str(number)
        kill_a_writer(root, nameless=nameless, verb=verb)
        store = LocalStore(str(root), nameless=nameless)
        found = [info.path for info in store.list("")]
        assert all(is_whole(store.find(path) or b"") for path in found)
        versions = [int(path.rsplit("/", 1)[1]) for path in found]
        assert versions == list(range(len(versions)))  # dense: none was skipped, none half made
        head = len(versions)
        assert store.put_if_absent(f"slots/{head // 50:05d}/{head:07d}", b"next")
