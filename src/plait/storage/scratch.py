"""Temporary files on the local disk: rows that are too many for memory wait in them.

Nothing of a table is ever here, so whatever the disk refuses happens before anything is
committed. Every error of these files is translated in this module, once: an error of the store or
of a caller's rows, raised while a file is open, passes as it is.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, Self

import pyarrow as pa
import pyarrow.fs as pafs

from plait.errors import StorageError, TableError

HINT: Final = "free space there, or set TMPDIR to a directory on a larger disk"


class Scratch:
    """A temporary directory, made when it is first needed and removed with ``close``.

    Use it in a ``with`` block, or close it. It never fails to close: what cannot be removed stays,
    and an operation that has succeeded does not seem to have failed.
    """

    def __init__(self, purpose: str, directory: str | None = None) -> None:
        """Begin; nothing is made yet.

        Args:
            purpose: a word in the name of the directory.
            directory: where it is made; None: where the system keeps temporary files.
        """
        self._purpose, self._directory = purpose, directory
        self._place: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        """Use it in a block."""
        return self

    def __exit__(self, *error: object) -> None:
        """Remove it."""
        self.close()

    def close(self) -> None:
        """Remove the directory and all that is in it."""
        if self._place is not None:
            self._place.cleanup()
            self._place = None

    @property
    def path(self) -> str:
        """The directory.

        Raises:
            StorageError: it cannot be made.
        """
        if self._place is None:
            with explained(self._directory):
                self._place = tempfile.TemporaryDirectory(
                    prefix=f"plait-{self._purpose}-",
                    dir=self._directory,
                    ignore_cleanup_errors=True,
                )
        return self._place.name

    def writer(self, name: str, schema: pa.Schema) -> ScratchWriter:
        """Begin a file of rows.

        Raises:
            StorageError: the disk is full or not there.
        """
        return ScratchWriter(self.path, name, schema)

    def batches(
        self, name: str, first: int = 0, count: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read a file, or some batches of it, one after the other.

        Raises:
            StorageError: the disk failed.
        """
        with explained(self.path):
            source = pa.OSFile(f"{self.path}/{name}")
        with source:
            with explained(self.path):
                reader = pa.ipc.open_file(source)
            end = reader.num_record_batches if count is None else first + count
            for at in range(first, end):
                with explained(self.path):
                    batch = reader.get_batch(at)
                yield batch

    def table(self, name: str) -> pa.Table:
        """Read a whole file.

        Raises:
            StorageError: the disk failed.
        """
        with explained(self.path), pa.OSFile(f"{self.path}/{name}") as source:
            return pa.ipc.open_file(source).read_all()

    def remove(self, name: str) -> None:
        """Remove a file that nobody needs any more; if it cannot be, it goes with the directory."""
        with suppress(OSError):
            os.unlink(f"{self.path}/{name}")  # noqa: PTH108 - a path as text, as Arrow takes it

    def filesystem(self) -> pafs.FileSystem:
        """Return an Arrow file system rooted here. Use it within ``alone``."""
        return pafs.SubTreeFileSystem(self.path, pafs.LocalFileSystem())

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Translate errors of a block that uses no other files than these.

        Code for files of the store runs in it, which has translated them, with the words for a
        store.
        """
        try:
            with explained(self.path):
                yield
        except StorageError as error:
            if isinstance(error.__cause__, OSError) and "free_bytes" not in error.facts:
                raise refused(self.path, error.__cause__) from error.__cause__
            raise


class ScratchWriter:
    """Writes rows into an Arrow file, uncompressed: as fast as the disk takes them."""

    def __init__(self, directory: str, name: str, schema: pa.Schema) -> None:
        self._directory = directory
        with explained(directory):
            self._sink = pa.OSFile(f"{directory}/{name}", "wb")
        try:
            with explained(directory):
                self._writer = pa.ipc.new_file(self._sink, schema)
        except BaseException:
            self._sink.close()
            raise

    def write(self, rows: pa.Table | pa.RecordBatch, *, rows_max: int | None = None) -> None:
        """Write rows: a batch, or a table in batches of at most ``rows_max``.

        Raises:
            StorageError: the disk is full or not there.
        """
        with explained(self._directory):
            if isinstance(rows, pa.Table):
                self._writer.write_table(rows, max_chunksize=rows_max)
            else:
                self._writer.write_batch(rows)

    def close(self) -> None:
        """End the file.

        Raises:
            StorageError: the disk is full or not there.
        """
        with explained(self._directory):
            try:
                self._writer.close()
            finally:
                self._sink.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self.close()
            return
        with suppress(StorageError):  # the first error matters
            self.close()


@contextmanager
def explained(directory: str | None, hint: str = HINT) -> Iterator[None]:
    """Say of what the disk refuses in a block where it was, what is free there, and what to do."""
    try:
        yield
    except TableError:
        raise
    except OSError as error:
        raise refused(directory, error, hint) from error


def refused(directory: str | None, error: BaseException, hint: str = HINT) -> StorageError:
    """Return the error for what the disk of temporary files refused."""
    place = directory or _system_directory()
    free = _free_bytes(place)
    known = "it is not known how much is free" if free is None else f"{free} bytes are free"
    cause = getattr(error, "strerror", None) or str(error)
    message = f"cannot keep rows in the temporary directory {place}: {cause}; {known} there"
    return StorageError(message, hint=hint, path=place, free_bytes=free)


def _system_directory() -> str:
    try:
        return tempfile.gettempdir()
    except OSError:  # there is none that can be written
        return os.environ.get("TMPDIR", "/tmp")  # noqa: S108 - only named, nothing is made there


def _free_bytes(place: str) -> int | None:
    try:
        return shutil.disk_usage(place).free
    except OSError:
        return None
