"""Errors of the file system and of Parquet, translated where they enter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from plait.errors import CorruptMetadataError, StorageError, TableError


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Turn errors of the store into StorageError."""
    try:
        yield
    except TableError:
        raise
    except OSError as error:
        message = f"cannot write {path}: {error}"
        raise StorageError(message, hint="check the store", path=path) from error


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn a missing or damaged file into CorruptMetadataError, others into StorageError."""
    try:
        yield
    except TableError:
        raise
    except FileNotFoundError as error:
        raise corrupt(path, "the file that a decision names", "no file") from error
    except (pa.ArrowException, ValueError, ArithmeticError) as error:
        raise corrupt(path, "a Parquet file", str(error)) from error
    except OSError as error:
        # Parquet reports damage inside a file as an OSError without an errno.
        if error.errno is None:
            raise corrupt(path, "a Parquet file", str(error)) from error
        message = f"cannot read {path}: {error}"
        raise StorageError(message, hint="check the store", path=path) from error


def corrupt(path: str, expected: str, found: str) -> CorruptMetadataError:
    """Make the error for a file that is not what the metadata says."""
    shown = found if len(found) <= 300 else found[:300] + "..."  # noqa: PLR2004 - one line
    message = f"{path} does not match the table's metadata: expected {expected}, found {shown}"
    hint = "run tablectl verify"
    return CorruptMetadataError(message, hint=hint, path=path, expected=expected, found=shown)
