"""Arrow's view of a local disk: no link below the root is followed, and only files are opened."""

# Every call is counted in microseconds here, so no pathlib.

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow.fs as pafs

from plait.storage.arrow import RootedHandler
from plait.storage.disk import Disk
from plait.storage.port import check_path
from plait.storage.tree import READ, WRITE, open_directory, open_file, parent

if TYPE_CHECKING:
    import pyarrow as pa

_OPEN = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"  # noqa: PTH112 - once
"""Where the system shows the files that this process has open, so that Arrow can open them too."""


class LocalFiles(RootedHandler):
    """Opens each file through the directories above it, then hands it to Arrow.

    Arrow's own file system opens by path, and would follow any link that lies on it.
    """

    def __init__(self, disk: Disk, root: str) -> None:
        self._local = pafs.LocalFileSystem()
        super().__init__(pafs.SubTreeFileSystem(root, self._local), "local")
        self._disk, self._root = disk, root

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open a file for reading anywhere in it."""
        with self._reading(path) as name:
            return self._local.open_input_file(name)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Open a file for reading once."""
        with self._reading(path) as name:
            return self._local.open_input_stream(name, compression=None)

    def open_output_stream(self, path: str, metadata: dict[str, str] | None) -> pa.NativeFile:
        """Open a file for writing; its directory is made when it is missing."""
        check_path(path)
        with self._disk.parent(path) as (directory, name):
            descriptor = open_file(directory, name, WRITE | os.O_CREAT, path=path)
        with _shown(descriptor) as shown:
            return self._local.open_output_stream(shown, compression=None, metadata=metadata)

    def create_dir(self, path: str, recursive: bool) -> None:  # noqa: FBT001, ARG002 - Arrow's call
        """Make a directory, and those above it."""
        with self._disk.parent(f"{check_path(path.rstrip('/'))}/file"):
            pass

    def delete_file(self, path: str) -> None:
        """Delete a file."""
        with parent(self._root, check_path(path)) as (directory, name):
            os.unlink(name, dir_fd=directory)

    def delete_dir(self, path: str) -> None:
        """Delete a directory and what is in it; links in it go, and not what they lead to."""
        os.close(open_directory(self._root, check_path(path)))
        super().delete_dir(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool) -> None:  # noqa: FBT001
        """Empty a directory; links in it go, and not what they lead to."""
        try:
            os.close(open_directory(self._root, check_path(path)))
        except FileNotFoundError:
            if missing_dir_ok:
                return
            raise
        super().delete_dir_contents(path, missing_dir_ok)

    def move(self, src: str, dest: str) -> None:
        """Rename a file."""
        check_path(dest)
        with (
            parent(self._root, check_path(src)) as (source, old),
            self._disk.parent(dest) as (target, new),
        ):
            os.rename(old, new, src_dir_fd=source, dst_dir_fd=target)

    def copy_file(self, src: str, dest: str) -> None:
        """Copy a file."""
        with self.open_input_stream(src) as source, self.open_output_stream(dest, None) as sink:
            sink.upload(source)

    @contextmanager
    def _reading(self, path: str) -> Iterator[str]:
        with parent(self._root, check_path(path)) as (directory, name):
            descriptor = open_file(directory, name, READ, path=path)
        with _shown(descriptor) as shown:
            yield shown


@contextmanager
def _shown(descriptor: int) -> Iterator[str]:
    """Return the path at which an open file can be opened once more, and close it afterwards."""
    try:
        yield f"{_OPEN}/{descriptor}"
    finally:
        os.close(descriptor)
