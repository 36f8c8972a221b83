"""Deletion vectors of a Delta table, as its log names them.

The library reads the log, but it expands each vector to one bit a row before anybody can see how
many rows there are: a few bytes can ask for all memory. So descriptors are looked up here, and a
vector is read with the bounds of our own decoder, when its file is read.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import unquote
from uuid import UUID

import pyarrow.fs as pafs
import pyarrow.parquet as pq

from plait.files.deletion import VECTOR_FRAME, decode, unframed, vector_bytes_max
from plait.files.roaring import Positions
from plait.interop.delta_actions import from_z85

LOG: Final = "_delta_log"
_COMMIT = re.compile(r"(\d{20})\.json", re.ASCII)
_CHECKPOINT = re.compile(
    r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-fA-F-]{36})?\.(parquet|json)", re.ASCII
)
_SIDECARS = "_sidecars"
_UUID_CHARS = 20
_TIME_MS_MAX = 1 << 47
"""A later time than this, in the year 6429, is none."""
_INLINE, _RELATIVE, _ABSOLUTE = "i", "u", "p"
_COLUMNS = ("add.path", "add.deletionVector", "sidecar.path")


@dataclass(frozen=True, slots=True)
class DeltaVector:
    """Where a vector is, and how many rows it hides; nothing of it is checked yet."""

    kind: str
    text: str
    """The vector itself, a path, or the name of a file; as the log spells it."""
    offset: int
    size: int
    count: int

    @classmethod
    def of(cls, said: Mapping[str, object]) -> Self:
        """Read a descriptor of a log; raise ValueError for one that names nothing."""
        kind, text = said.get("storageType"), said.get("pathOrInlineDv")
        size, count, offset = (said.get(n) for n in ("sizeInBytes", "cardinality", "offset"))
        if kind == _INLINE and offset is None:
            offset = 0
        numbers = [each for each in (size, count, offset) if type(each) is int and each >= 0]
        kinds = (_INLINE, _RELATIVE, _ABSOLUTE)
        if (
            kind not in kinds
            or not isinstance(text, str)
            or len(numbers) != len((size, count, offset))
        ):
            raise ValueError("the log names a deletion vector that cannot be one")
        return cls(str(kind), text, numbers[2], numbers[0], numbers[1])

    def load(self, files: pafs.FileSystem, rows: int, locate: Callable[[str], str]) -> Positions:
        """Read which rows of a file it hides, sorted.

        Args:
            files: where the table is.
            rows: how many the file has, by its footer.
            locate: returns where a file is that the log names; it may ask for consent.

        Raises:
            ValueError: it is not a vector of so many rows of such a file.
            ConsentError: it lies elsewhere, and the caller did not allow that.
        """
        if self.size > vector_bytes_max(rows):
            raise ValueError(f"a vector of {self.size} bytes for a file of {rows} rows")
        if self.kind == _INLINE:
            return decode(from_z85(self.text)[: self.size], count=self.count, rows=rows)
        with files.open_input_file(locate(self.file)) as source:
            if source.size() < self.offset + self.size + VECTOR_FRAME:
                raise ValueError(f"{self.file} ends before its vector")
            entry: bytes = source.read_at(self.size + VECTOR_FRAME, self.offset)
        return decode(unframed(entry, self.size), count=self.count, rows=rows)

    @property
    def file(self) -> str:
        """The file that it is in, as the log would spell it."""
        if self.kind == _ABSOLUTE:
            return self.text
        folder, name = self.text[:-_UUID_CHARS], self.text[-_UUID_CHARS:]
        path = f"deletion_vector_{UUID(bytes=from_z85(name))}.bin"
        return f"{folder}/{path}" if folder else path


def find_vectors(
    files: pafs.FileSystem,
    root: str,
    version: int,
    paths: Iterable[str],
    spell: Callable[[str], str],
) -> dict[str, DeltaVector]:
    """Return the vectors of live files of a version, by the paths of those that have one.

    Args:
        files: where the table is.
        root: its directory.
        version: the version.
        paths: the live files.
        spell: returns such a path for what the log says.

    Raises:
        ValueError: the log does not have them all, or is damaged.
        OSError: it cannot be read.
    """
    wanted, found = set(paths), {}
    for action in _newest_first(files, f"{root.rstrip('/')}/{LOG}", version):
        path = spell(str(action.get("path")))
        # The newest action about a file is in force: a vector is changed by adding the file anew.
        if path in wanted:
            wanted.discard(path)
            said = action.get("deletionVector")
            if isinstance(said, dict):
                found[path] = DeltaVector.of(said)
        if not wanted:
            return found
    if wanted:
        raise ValueError(f"the log does not say how {min(wanted)} came into version {version}")
    return found


def commit_facts(files: pafs.FileSystem, root: str, version: int) -> tuple[int | None, bool]:
    """Return when a commit was made, and whether it says that it changed no rows.

    The time is that in the log, which never changes; not that of its file.

    Raises:
        OSError, ValueError: the commit cannot be read.
    """
    time_ms, changed, files_named = None, False, False
    for action in _lines(files, f"{root.rstrip('/')}/{LOG}/{version:020d}.json"):
        info = action.get("commitInfo")
        if isinstance(info, dict):
            times = (info.get("inCommitTimestamp"), info.get("timestamp"))
            time_ms = next((t for t in times if type(t) is int and 0 <= t < _TIME_MS_MAX), None)
        for file in (action.get("add"), action.get("remove")):
            if isinstance(file, dict):
                files_named = True
                changed = changed or file.get("dataChange") is not False
    return time_ms, files_named and not changed


def _newest_first(files: pafs.FileSystem, log: str, version: int) -> Iterator[Mapping[str, object]]:
    """Read the files that were added up to a version; those of the last checkpoint come last."""
    commits, checkpoints = _listed(files, log, version)
    base = max((number for number, names in checkpoints.items() if names), default=-1)
    for number in range(version, base, -1):
        if number not in commits:
            raise ValueError(f"the log lacks version {number}")
        yield from _adds(_lines(files, f"{log}/{commits[number]}"))
    for name in checkpoints.get(base, ()):
        yield from _checkpoint(files, log, name)


def _listed(
    files: pafs.FileSystem, log: str, version: int
) -> tuple[dict[int, str], dict[int, list[str]]]:
    """Return the commits up to a version, and the files of each whole checkpoint."""
    commits: dict[int, str] = {}
    checkpoints: dict[int, list[str]] = {}
    parts: dict[tuple[int, int], list[str]] = {}
    for info in files.get_file_info(pafs.FileSelector(log)):
        name = info.base_name
        if match := _COMMIT.fullmatch(name):
            commits[int(match[1])] = name
        elif (match := _CHECKPOINT.fullmatch(name)) and int(match[1]) <= version:
            if match[3] is None:
                checkpoints[int(match[1])] = [name]
            else:
                parts.setdefault((int(match[1]), int(match[3])), []).append(name)
    for (number, count), names in parts.items():
        if len(names) == count:
            checkpoints.setdefault(number, names)
    return commits, checkpoints


def _checkpoint(files: pafs.FileSystem, log: str, name: str) -> Iterator[Mapping[str, object]]:
    read = _lines if name.endswith(".json") else _rows
    sidecars = []
    for action in read(files, f"{log}/{name}"):
        yield from _adds([action])
        sidecar = action.get("sidecar")
        if isinstance(sidecar, dict) and sidecar.get("path"):
            # By the protocol they are in one folder, whatever folder the path may name.
            sidecars.append(unquote(str(sidecar["path"])).rpartition("/")[2])
    for each in sidecars:
        yield from _adds(_rows(files, f"{log}/{_SIDECARS}/{each}"))


def _adds(actions: Iterable[Mapping[str, object]]) -> Iterator[Mapping[str, object]]:
    for action in actions:
        add = action.get("add")
        if isinstance(add, dict) and add.get("path") is not None:
            yield add


def _lines(files: pafs.FileSystem, path: str) -> Iterator[Mapping[str, object]]:
    with io.BufferedReader(files.open_input_file(path)) as stream:
        for line in stream:
            action = json.loads(line) if line.strip() else {}
            if not isinstance(action, dict):
                raise ValueError(f"{path} has a line that is no action")  # noqa: TRY004 - of a stranger
            yield action


def _rows(files: pafs.FileSystem, path: str) -> Iterator[Mapping[str, object]]:
    with pq.ParquetFile(path, filesystem=files) as file:
        names = {each.path for each in map(file.schema.column, range(len(file.schema)))}
        columns = [
            each for each in _COLUMNS if any(f"{name}.".startswith(f"{each}.") for name in names)
        ]
        for batch in file.iter_batches(columns=columns):
            yield from batch.to_pylist()
