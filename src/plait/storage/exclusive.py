"""Giving content a name that nobody has: in one step, or not at all.

Three ways, the first that the file system knows: link a nameless file (``O_TMPFILE``), link a
hidden name, rename a hidden name without replacing (``renameat2``).
"""

# Every call is counted in microseconds here, so no pathlib.

from __future__ import annotations

import ctypes
import errno
import functools
import os

UNSUPPORTED = frozenset(
    {
        errno.EPERM, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP,
        errno.EMLINK, errno.EISDIR,
    }
)  # fmt: skip
"""What a file system answers when it has no such thing."""
NAMELESS = getattr(os, "O_TMPFILE", 0)
_RENAME_NOREPLACE = 1


def link_nameless(descriptor: int, directory: int, name: str) -> bool:
    """Name an open file that has no name: True; False if the name is taken.

    Raises:
        NotImplementedError: this system cannot.
        OSError: it failed; the name was not given.
    """
    try:
        # a directory descriptor, though unused, makes Python follow the link in /proc
        os.link(
            f"/proc/self/fd/{descriptor}",
            name,
            src_dir_fd=descriptor,
            dst_dir_fd=directory,
            follow_symlinks=True,
        )
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno in UNSUPPORTED or error.errno in (errno.ENOENT, errno.EXDEV):
            raise NotImplementedError from error
        raise
    return True


def link_named(directory: int, temp: str, name: str) -> bool:
    """Name a file, beside its hidden name or instead of it; return False if the name is taken.

    Both names are in one directory.

    Raises:
        NotImplementedError: the file system has neither links nor ``renameat2``.
        OSError: it failed; the name was not given.
    """
    try:
        os.link(temp, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError as error:
        if error.errno in UNSUPPORTED:
            return rename_if_absent(directory, temp, name)
        if _landed(directory, temp):
            return True
        if isinstance(error, FileExistsError):
            return False
        raise
    return True


def _landed(directory: int, temp: str) -> bool:
    """Tell whether the file has its second name: NFS can report failure after success."""
    try:
        return os.stat(temp, dir_fd=directory, follow_symlinks=False).st_nlink > 1
    except OSError:
        return False


@functools.cache
def _libc() -> ctypes.CDLL | None:
    library = ctypes.CDLL(None, use_errno=True)
    return library if hasattr(library, "renameat2") else None


def rename_if_absent(directory: int, source: str, target: str) -> bool:
    """Rename a file in one directory if the target is free: True; False if it is taken.

    Raises:
        NotImplementedError: neither the C library nor the file system can do it.
        OSError: the rename failed.
    """
    library = _libc()
    if library is None:
        raise NotImplementedError
    result = library.renameat2(
        directory, os.fsencode(source), directory, os.fsencode(target), _RENAME_NOREPLACE
    )
    if result == 0:
        return True
    code = ctypes.get_errno()
    if code == errno.EEXIST:
        return False
    if code in UNSUPPORTED:
        raise NotImplementedError
    raise OSError(code, os.strerror(code), target)
