"""Walk below a directory without following a link: nothing in a table leads out of it.

Every directory on the way is opened from the one above it, so that nobody can put a link in between
after it was looked at. Only the root itself may be reached through links.
"""

# Every call is counted in microseconds here, so no pathlib.

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from plait.errors import CorruptMetadataError

READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Flags to read a file: no link is followed, and a pipe without a writer is not waited for."""
WRITE = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
DIRECTORY = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
MODE = 0o666  # the umask takes away what it must
_FILE = "a regular file"
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFREG: _FILE,
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
}
_OTHER = "a device"


def open_directory(root: str, path: str) -> int:
    """Open a directory below the root; ``path`` is "" for the root itself.

    Raises:
        FileNotFoundError: it is not there.
        CorruptMetadataError: a link or a file stands where a directory belongs.
        OSError: the system refused.
    """
    try:
        descriptor = os.open(root, DIRECTORY)
    except NotADirectoryError as error:  # a file: there is no table here
        raise FileNotFoundError(*error.args) from error
    return open_below(descriptor, path)


def open_below(outer: int, path: str, make: Callable[[str], bool] | None = None) -> int:
    """Open a directory below one that is open, which is closed.

    ``make`` tells by its path whether a directory on the way is made when it is missing.
    """
    done = ""
    for part in path.split("/") if path else ():
        done = f"{done}/{part}" if done else part
        try:
            inner = open_inner(outer, part, done, make=make is not None and make(done))
        finally:
            os.close(outer)
        outer = inner
    return outer


def open_inner(outer: int, part: str, path: str, *, make: bool = False) -> int:
    """Open a directory in one that is open; ``path`` names it in errors."""
    flags = DIRECTORY | os.O_NOFOLLOW
    try:
        try:
            return os.open(part, flags, dir_fd=outer)
        except FileNotFoundError:
            if not make:
                raise
            make_directory(outer, part)
            return os.open(part, flags, dir_fd=outer)
    except OSError as error:
        require_kind(outer, part, path, stat.S_IFDIR, error)
        raise


def make_directory(outer: int, part: str) -> None:
    """Make a directory that somebody else may be making too."""
    try:
        os.mkdir(part, dir_fd=outer)
    except FileExistsError:
        return


@contextmanager
def parent(root: str, path: str) -> Iterator[tuple[int, str]]:
    """Open the directory that a file is in; give its descriptor and the file's own name."""
    directory, _, name = path.rpartition("/")
    descriptor = open_directory(root, directory)
    try:
        yield descriptor, name
    finally:
        os.close(descriptor)


def open_file(directory: int, name: str, flags: int, *, path: str) -> int:
    """Open a regular file; ``path`` names it in errors.

    Raises:
        CorruptMetadataError: it is a link, a directory, a pipe or the like.
        OSError: the system refused, or there is none.
    """
    try:
        descriptor = os.open(name, flags, MODE, dir_fd=directory)
    except OSError as error:
        require_kind(directory, name, path, stat.S_IFREG, error)
        raise
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG:
        os.close(descriptor)
        raise _misplaced(path, stat.S_IFREG, kind)
    return descriptor


def kind_of(mode: int) -> str:
    """Return what a name stands for by its mode; "" for a regular file."""
    kind = stat.S_IFMT(mode)
    return "" if kind == stat.S_IFREG else _KINDS.get(kind, _OTHER)


def require_kind(directory: int, name: str, path: str, kind: int, cause: OSError) -> None:
    """Raise CorruptMetadataError if the name is there and is of another kind than it must be."""
    try:
        there = stat.S_IFMT(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return
    if there != kind:
        raise _misplaced(path, kind, there) from cause


def require_plain(root: str, path: str) -> None:
    """Raise CorruptMetadataError if a link lies on the way to a name, or is what it names."""
    try:
        with parent(root, path) as (directory, name):
            kind = stat.S_IFMT(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return
    if kind not in (stat.S_IFREG, stat.S_IFDIR):
        raise _misplaced(path, stat.S_IFREG, kind)


def find_first(root: str, paths: Sequence[str]) -> str | None:
    """Return the first of these names that is taken; None if none is."""
    places: dict[str, list[str]] = {}
    for path in paths:
        places.setdefault(path.rpartition("/")[0], []).append(path)
    for names in places.values():
        with suppress(FileNotFoundError), parent(root, names[0]) as (directory, _):
            taken = (path for path in names if exists(directory, path.rpartition("/")[2]))
            if (first := next(taken, None)) is not None:
                return first
    return None


def exists(directory: int, name: str) -> bool:
    """Tell whether a name is taken, also by a link that leads nowhere."""
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return False
    return True


def _misplaced(path: str, expected: int, there: int) -> CorruptMetadataError:
    wanted, kind = _KINDS[expected], _KINDS.get(there, _OTHER)
    message = f"{path} is {kind} , expected {wanted}"
    hint = "find out who put it there; links inside a table are never followed"
    return CorruptMetadataError(message, hint=hint, path=path, expected=wanted, found=kind)
