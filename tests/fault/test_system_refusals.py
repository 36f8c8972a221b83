"""What the operating system refuses reaches a caller as an error of ours, at whichever call.

A first run of an operation records from which lines of the source it asks the system. Then the
operation runs once for each of them, and the system refuses exactly that line.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import plait
from plait import Table
from plait.errors import OptionError, StorageError, TableError
from plait.storage import open_store
from plait.testing import SimClock, sim_ports
from plait.txn.table_handle import open_handle
from tests.support import build
from tests.support.effort import MORE
from tests.support.place import quick_place

SOURCE = os.path.dirname(plait.__file__)
CALLS = [
    "open",
    "stat",
    "fstat",
    "link",
    "rename",
    "unlink",
    "mkdir",
    "makedirs",
    "scandir",
    "listdir",
    "fsync",
    "write",
    "read",
    "getcwd",
]
REFUSALS = (
    errno.EACCES,
    errno.EPERM,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.ENOENT,
    errno.EIO,
)
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("x", pa.string())])

Site = tuple[str, int, str]
rows = partial(build.rows, schema=SCHEMA, x="v")


class System:
    """Stands before the system's calls: it records who asks, and refuses one of them."""

    def __init__(self) -> None:
        self.sites: set[Site] = set()
        self.target: Site | None = None
        self.code = 0
        self.on = False

    def before(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        """Return a call of the system with this one before it."""

        def asked(*args: Any, **named: Any) -> Any:
            if self.on:
                frame = sys._getframe(1)
                if frame.f_code.co_filename.startswith(SOURCE):
                    site = (frame.f_code.co_filename, frame.f_lineno, name)
                    self.sites.add(site)
                    if site == self.target:
                        raise OSError(self.code, os.strerror(self.code))
            return real(*args, **named)

        return asked

    @contextmanager
    def watching(self, target: Site | None = None, code: int = 0) -> Iterator[None]:
        """Record in a block; refuse the target."""
        self.target, self.code, self.on = target, code, True
        try:
            yield
        finally:
            self.on = False


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    found = System()
    for name in CALLS:
        monkeypatch.setattr(os, name, found.before(name, getattr(os, name)))
    return found


DOORS: dict[str, Callable[[Path, Table], object]] = {
    "create": lambda place, _: Table.create(str(place / "u"), SCHEMA, record_key=["id"]),
    "open": lambda place, _: Table.open(str(place / "t")),
    "append": lambda _, table: table.append(rows(9)),
    "upsert": lambda _, table: table.upsert(rows(1, 8)),
    "delete": lambda _, table: table.delete(where="id = 1"),
    "scan": lambda _, table: table.scan().to_arrow(),
    "compact": lambda _, table: table.maintenance.compact(),
    "clean": lambda _, table: table.maintenance.clean(),
    "verify": lambda _, table: table.check.verify(),
    "index": lambda _, table: table.index.create(),
}


def made(place: Path) -> Table:
    """Make a table with two versions of rows, and nothing else there."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    table = Table.create(str(place / "t"), SCHEMA, record_key=["id"], table_type="mor", lock="file")
    table.append(rows(1, 2))
    table.upsert(rows(2, 3))
    return Table(open_handle(open_store(str(place / "t")), sim_ports(clock=SimClock())))


def foreign(act: Callable[[], object]) -> BaseException | None:
    """Run an operation; return an exception that is none of ours."""
    try:
        act()
    except TableError:
        return None
    except Exception as error:  # noqa: BLE001 - it is what is looked for
        return error
    return None


def refuse_each(system: System, door: str, codes: Callable[[int], tuple[int, ...]]) -> int:
    """Refuse each line in turn; return how many runs there were."""
    act, runs = DOORS[door], 0
    with quick_place() as base:
        place = Path(base) / "here"
        table = made(place)
        system.sites.clear()
        with system.watching():
            act(place, table)
        for at, site in enumerate(sorted(system.sites)):
            for code in codes(at):
                table, runs = made(place), runs + 1
                with system.watching(site, code):
                    error = foreign(lambda table=table: act(place, table))  # type: ignore[misc]
                assert error is None, (door, site, errno.errorcode[code], repr(error))
                Table.open(str(place / "t")).scan().to_arrow()
    return runs


@pytest.mark.long(4)
@pytest.mark.parametrize("door", DOORS)
def test_a_refusal_of_the_system_is_an_error_of_ours_at_each_call(
    system: System, door: str
) -> None:
    """One way for each line, all of them in ``make soak``."""
    shift = len(door)
    count = refuse_each(
        system, door, lambda at: REFUSALS if MORE else (REFUSALS[(at + shift) % len(REFUSALS)],)
    )
    print(f"{door}: {count} refusals")  # noqa: T201 - make soak shows it
    assert count


@pytest.mark.parametrize("door", ["create", "append", "upsert", "delete", "compact", "index"])
def test_a_full_disk_of_the_table_is_an_error_of_ours_and_changes_nothing(door: str) -> None:
    """The kernel lets no file grow, whoever writes it: Arrow's own calls fail too."""
    with quick_place() as base:
        place = Path(base) / "here"
        table = made(place)
        before = table.scan().to_arrow().sort_by("id")
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
        try:
            with pytest.raises(TableError):
                DOORS[door](place, table)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        opened = Table.open(str(place / "t"))
        assert opened.scan().to_arrow().sort_by("id") == before
        assert not opened.check.verify().problems


@pytest.fixture
def no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run where the working directory was deleted; return another directory."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    return tmp_path


def test_a_deleted_working_directory_stops_no_table_with_an_absolute_path(
    no_directory: Path,
) -> None:
    place = str(no_directory / "t")
    table = Table.create(place, SCHEMA, record_key=["id"])
    table.append(rows(1))
    table.maintenance.compact()
    opened = Table.open(place, allow=[f"{no_directory}/*"])
    assert opened.scan().to_arrow().num_rows == 1
    Table.create("memory://no-working-directory", SCHEMA)


@pytest.mark.parametrize(
    "act",
    [
        lambda _: Table.open("t"),
        lambda _: Table.create("t", SCHEMA),
        lambda place: Table.create(f"{place}/t", SCHEMA, record_key=["id"], replicas=["a=b/c"]),
        lambda place: Table.create(
            f"{place}/t", SCHEMA, record_key=["id"], replicas=["a=sqlite:///x.db#t"]
        ),
        lambda place: Table.open(f"{place}/t", allow=["b/*"]),
    ],
)
def test_a_relative_path_is_a_storage_error_when_the_working_directory_was_deleted(
    no_directory: Path, act: Callable[[Path], object]
) -> None:
    with pytest.raises(StorageError) as caught:
        act(no_directory)
    assert not str(caught.value.path).startswith("/")
    assert "absolute" in caught.value.hint
    assert not list(no_directory.iterdir())


def test_a_file_whose_name_is_no_text_is_passed_over(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), SCHEMA, record_key=["id"])
    table.append(rows(1))
    directory = os.fsencode(tmp_path / "t" / "data")
    Path(os.fsdecode(directory + b"/\xff\xfe")).touch()
    assert not table.check.verify().problems
    Path(os.fsdecode(directory + b"/caf\xc3\xa9")).touch()
    listed = [each.path for each in open_store(str(tmp_path / "t")).list("data")]
    assert "data/caf\u00e9" in listed
    assert all(path.isprintable() for path in listed)


def test_a_path_that_is_no_text_is_refused() -> None:
    with pytest.raises(OptionError):
        Table.open("/tmp/\udcff")
