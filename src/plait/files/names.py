"""Names of the files that writers leave: where they lie, and whose they are.

``<partition>/<bucket>-<instant>-<attempt>.<kind>.<extension>``. A name is unique for ever (INV-04
needs no file to be written twice): the instant carries its writer's nonce, the attempt tells the
files of one instant apart. Values of partitions are never read from it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from plait.errors import FormatError, InvariantError
from plait.model.bucket import UNKEYED, Partition, partition_path
from plait.model.changes import BASE, LOG
from plait.model.instant import Instant

RUN: Final = "run"
"""A sorted part of a bucket that no reader sees."""
KEYS: Final = "keys"
"""A sidecar of key hashes."""
MASK: Final = "dv"
"""Deletion vectors, one or more."""

EXTENSIONS: Final = {
    BASE: "parquet",
    LOG: "parquet",
    RUN: "parquet",
    KEYS: "bin",
    MASK: "bin",
}
_NO_BUCKET = "all"
_ATTEMPT = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
_NAME = re.compile(
    r"(\d{5,10}|all)-(\d{17}-[0-9a-f]{16})-([A-Za-z0-9-]{1,64})\.([a-z]+)\.([a-z]+)", re.ASCII
)


@dataclass(frozen=True, slots=True)
class FileName:
    """What the name of a file says."""

    directory: str
    """The partition's directory; its values are not in it."""
    bucket: int
    """UNKEYED for files that belong to no single bucket."""
    instant: Instant
    attempt: str
    kind: str


def data_path(partition: Partition, bucket: int, instant: Instant, attempt: str, kind: str) -> str:
    """Name a file.

    Args:
        partition: the canonical texts of its partition values.
        bucket: its bucket number, or UNKEYED.
        instant: the writer's.
        attempt: unique among the files of this instant, ``[A-Za-z0-9-]{1,64}``; for example
            ``"3-0012"``: task 3, file 12.
        kind: base, log, run, keys or dv.

    >>> data_path((), 7, Instant.at(0, "0" * 16), "0-0001", "base")
    'data/00007-19700101000000000-0000000000000000-0-0001.base.parquet'
    """
    if kind not in EXTENSIONS or not _ATTEMPT.fullmatch(attempt) or bucket < UNKEYED:
        message = f"not a name for a file: {kind!r}, {attempt!r}, bucket {bucket}"
        raise InvariantError(message)
    number = _NO_BUCKET if bucket == UNKEYED else f"{bucket:05d}"
    name = f"{number}-{instant}-{attempt}.{kind}.{EXTENSIONS[kind]}"
    return f"{partition_path(partition)}/{name}"


def parse_path(path: str) -> FileName | None:
    """Read a name that ``data_path`` made; None for anything else.

    >>> parse_path("data/all-19700101000000000-0000000000000000-0-0001.log.parquet").kind
    'log'
    """
    directory, slash, name = path.rpartition("/")
    match = _NAME.fullmatch(name)
    if not slash or not directory or "/" in directory or match is None:
        return None
    number, instant_text, attempt, kind, extension = match.groups()
    if EXTENSIONS.get(kind) != extension:
        return None
    bucket = UNKEYED if number == _NO_BUCKET else int(number)
    if number not in (_NO_BUCKET, f"{bucket:05d}"):
        return None
    try:
        instant = Instant.parse(instant_text)
    except FormatError:
        return None
    return FileName(directory, bucket, instant, attempt, kind)
