"""Arrow's view of a store: paths relative to the table, checked, directories made on the way.

On a local disk no link below the table is followed, and only files are opened.
"""

# Every call is counted in microseconds here, so no pathlib.

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow.fs as pafs

from plait.storage.disk import Disk
from plait.storage.port import check_path
from plait.storage.tree import READ, WRITE, open_directory, open_file, parent

if TYPE_CHECKING:
    import pyarrow as pa

_OPEN = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"  # noqa: PTH112 - once
"""Where the system shows the files that this process has open, so that Arrow can open them too."""


class RootedHandler(pafs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """Passes on to a file system rooted at the table.

    Only opening goes through Python: the streams that it gives are the inner ones, so that
    reading and writing run without it.
    """

    def __init__(
        self,
        base: pafs.FileSystem,
        name: str,
        *,
        make_parents: Callable[[str], None] | None = None,
    ) -> None:
        self._base, self._name, self._make_parents = base, name, make_parents

    def get_type_name(self) -> str:
        """Name the kind of file system."""
        return f"plait-{self._name}"

    def __eq__(self, other: object) -> bool:
        """Tell whether both show the same place."""
        if isinstance(other, RootedHandler):
            return self._name == other._name and self._base.equals(other._base)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # equal by place, which Arrow cannot hash

    def __ne__(self, other: object) -> bool:
        """Tell whether they show different places; Arrow asks for it by name."""
        return not self == other

    def normalize_path(self, path: str) -> str:
        """Return the path as it is: only one spelling is allowed."""
        return _checked(path)

    def get_file_info(self, paths: Sequence[str]) -> list[pafs.FileInfo]:
        """Describe files."""
        infos: list[pafs.FileInfo] = self._base.get_file_info([_checked(path) for path in paths])
        return infos

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        """Describe the files of a directory."""
        _checked(selector.base_dir)
        infos: list[pafs.FileInfo] = self._base.get_file_info(selector)
        return infos

    def create_dir(self, path: str, recursive: bool) -> None:  # noqa: FBT001 - Arrow's call
        """Make a directory."""
        self._base.create_dir(_checked(path), recursive=recursive)

    def delete_dir(self, path: str) -> None:
        """Delete a directory and what is in it."""
        self._base.delete_dir(check_path(path))

    def delete_dir_contents(self, path: str, missing_dir_ok: bool) -> None:  # noqa: FBT001
        """Empty a directory."""
        self._base.delete_dir_contents(check_path(path), missing_dir_ok=missing_dir_ok)

    def delete_root_dir_contents(self) -> None:
        """Refuse: nobody empties a table through Arrow."""
        raise PermissionError("cannot delete the contents of a whole table through its file system")

    def delete_file(self, path: str) -> None:
        """Delete a file."""
        self._base.delete_file(check_path(path))

    def move(self, src: str, dest: str) -> None:
        """Rename a file."""
        self._base.move(check_path(src), self._with_parent(check_path(dest)))

    def copy_file(self, src: str, dest: str) -> None:
        """Copy a file."""
        self._base.copy_file(check_path(src), self._with_parent(check_path(dest)))

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Open a file for reading once."""
        return self._base.open_input_stream(check_path(path), compression=None)

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open a file for reading anywhere in it."""
        return self._base.open_input_file(check_path(path))

    def open_output_stream(self, path: str, metadata: dict[str, str] | None) -> pa.NativeFile:
        """Open a file for writing; its directory is made when it is missing."""
        check_path(path)
        try:
            return self._open_output(path, metadata)
        except FileNotFoundError:
            if self._make_parents is None:
                raise
            return self._open_output(self._with_parent(path), metadata)

    def open_append_stream(
        self,
        path: str,
        metadata: dict[str, str] | None,  # noqa: ARG002 - Arrow's call
    ) -> pa.NativeFile:
        """Refuse: files of a table are written once."""
        raise PermissionError(f"{path}: files of a table are written once, never appended to")

    def _open_output(self, path: str, metadata: dict[str, str] | None) -> pa.NativeFile:
        return self._base.open_output_stream(path, compression=None, metadata=metadata)

    def _with_parent(self, path: str) -> str:
        if self._make_parents is not None:
            self._make_parents(path)
        return path


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


def _checked(path: str) -> str:
    path = path.rstrip("/")
    return path and check_path(path)
