"""Arrow's view of a store: paths relative to the table, checked, directories made on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow.fs as pafs

from plait.storage.port import check_path

if TYPE_CHECKING:
    import pyarrow as pa


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
        message = "cannot delete the contents of a whole table through its file system"
        raise PermissionError(message)

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
        message = f"{path}: files of a table are written once, never appended to"
        raise PermissionError(message)

    def _open_output(self, path: str, metadata: dict[str, str] | None) -> pa.NativeFile:
        return self._base.open_output_stream(path, compression=None, metadata=metadata)

    def _with_parent(self, path: str) -> str:
        if self._make_parents is not None:
            self._make_parents(path)
        return path


def _checked(path: str) -> str:
    path = path.rstrip("/")
    return path and check_path(path)
