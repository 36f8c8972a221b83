"""The options of ``format("plait")``, read once and refused by name where they are not known."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from plait.catalog.catalog import Catalog
from plait.errors import OptionError
from plait.table import Table

_ALLOW = "places outside of the table that it may name and that are then used, with blanks between"

READING = {
    "path": "where the table is, or its name in a catalog",
    "catalog": "the root of a catalog, where the path is a name such as sales.trips",
    "allow": _ALLOW,
    "version": "the version to read; the newest by default",
    "as_of": "an instant or ISO time: the version that was current then",
    "where": "SQL text: only files in which it may hold are read; rows are filtered by it too",
    "since": "read what commits changed after this version, instant or time",
    "until": "with since: the last version, instant or time that counts; the newest by default",
}
FOLLOWING = {
    "path": "where the table is, or its name in a catalog",
    "catalog": "the root of a catalog, where the path is a name such as sales.trips",
    "allow": _ALLOW,
    "start": "the first version to deliver, a time, earliest or latest; else the rows first",
    "changes": "true: rows as they were and as they became, deleted ones too",
    "deletes": "raise or skip, where deleted rows are not among what is delivered",
    "max_versions": "the most commits that one batch takes in",
    "max_files": "the most files that one batch reads",
    "max_bytes": "the most bytes that one batch reads, for example 1GiB",
    "where": "SQL text: only files in which it may hold are read; rows are filtered by it too",
}
WRITING = {
    "path": "where the table is, or its name in a catalog",
    "catalog": "the root of a catalog, where the path is a name such as sales.trips",
    "allow": _ALLOW,
    "operation": "append, insert or upsert; overwrite goes with mode('overwrite')",
    "commit_id": "an idempotency key: seen before, nothing is written",
    "on_conflict": "raise or retry",
    "on_duplicate": "raise or skip, for insert of keys that are there",
    "missing_columns": "with upsert: raise, or keep the values of columns that the rows lack",
    "evolve": "none; or add: columns of the rows that the table lacks are added with them",
    "merge_schema": "true: the same as evolve=add, by Spark's name; false: as evolve=none",
    "read_from": "the version that the rows were computed from, or none",
    "where": "with mode('overwrite'): the rows that go",
    "partitions": "dynamic, with mode('overwrite'): just the partitions of the rows go",
    "partition_overwrite_mode": "static or dynamic, with mode('overwrite'); else the session's",
}
STREAMING = {
    "path": "where the table is, or its name in a catalog",
    "catalog": "the root of a catalog, where the path is a name such as sales.trips",
    "allow": _ALLOW,
    "application": "the stream's name in the table; else the query's, or its checkpoint's location",
    "operation": "append, insert or upsert; overwrite goes with outputMode('complete')",
    "on_conflict": "retry (default) or raise",
    "on_duplicate": "raise or skip, for insert of keys that are there",
    "missing_columns": "with upsert: raise, or keep the values of columns that the rows lack",
    "evolve": "none; or add: columns of the rows that the table lacks are added with them",
    "merge_schema": "true: the same as evolve=add, by Spark's name; false: as evolve=none",
    "checkpointlocation": "Spark's own: the offsets in it go into the table too",
    "queryname": "Spark's own, by queryName(...)",
    "read_from": "none: no row was computed from this table; for serializable tables",
}
_PURPOSES = {
    "reading": READING,
    "streaming reads": FOLLOWING,
    "writing": WRITING,
    "streaming writes": STREAMING,
}
STORAGE = "storage."
"""Keys with this prefix go to the file system of the path, without it."""


@dataclass(frozen=True)
class SourceOptions:
    """What a caller gave, keys in small letters."""

    values: Mapping[str, str] = field(default_factory=dict)
    storage: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Mapping[str, str], known: Mapping[str, str]) -> SourceOptions:
        """Sort options out.

        Raises:
            OptionError: one is not known, or there is no path.
        """
        values: dict[str, str] = {}
        storage: dict[str, str] = {}
        names = {bare(name): name for name in known}
        for raw, value in given.items():
            key = raw.lower()
            if key.startswith(STORAGE):
                storage[key.removeprefix(STORAGE)] = value
                continue
            name = names.get(bare(raw))
            if name is None:
                raise _unknown(raw, value, known)
            if values.setdefault(name, value) != value:
                message = f"{name} is set twice: {values[name]!r} and {value!r}"
                raise OptionError(message, hint="keep one of them", key=name, value=value)
        if not values.get("path"):
            message = "no path is given"
            verb = "start" if known is STREAMING else "save" if known is WRITING else "load"
            raise OptionError(message, hint=f'.{verb}("/path/of/table")', key="path", value="")
        return cls(values, storage)

    def find(self, key: str) -> str | None:
        """Return a value; None if it was not given."""
        return self.values.get(key)

    def flag(self, key: str) -> bool:
        """Return a value that is true or false; false if it was not given.

        Raises:
            OptionError: it is neither.
        """
        value = self.values.get(key, "false").lower()
        if value not in ("true", "false"):
            message = f"{key}={value!r} is not true or false"
            raise OptionError(message, hint="use true or false", key=key, value=value)
        return value == "true"

    @property
    def evolve(self) -> str:
        """Return what happens to columns that the table lacks, by whichever name it was asked.

        Raises:
            OptionError: the two names contradict, or it is not true or false.
        """
        asked, merges = self.find("evolve"), self.flag("merge_schema")
        if asked is None:
            return "add" if merges else "none"
        if self.find("merge_schema") is not None and merges != (asked == "add"):
            message = f"mergeSchema={str(merges).lower()} contradicts evolve={asked}"
            raise OptionError(message, hint="keep one of them", key="evolve", value=asked)
        return asked

    def table(self) -> Table:
        """Open the table, by its place or by its name in a catalog."""
        storage, allow = dict(self.storage) or None, self.values.get("allow")
        root, path = self.values.get("catalog"), self.values["path"]
        if root is not None:
            return Catalog(root, storage_options=storage, allow=allow).table(path)
        return Table.open(path, storage_options=storage, allow=allow)


def bare(key: str) -> str:
    """Return an option's name as it is compared: ``readFrom`` and ``read_from`` are one.

    >>> bare("readFrom") == bare("read_from")
    True
    """
    return key.lower().replace("_", "")


def _unknown(raw: str, value: str, known: Mapping[str, str]) -> OptionError:
    near = difflib.get_close_matches(raw.lower(), known, n=1)
    message = f"the data source has no option {raw!r}"
    for purpose, options in _PURPOSES.items():
        if bare(raw) in map(bare, options):
            message, near = f"{raw!r} is an option for {purpose} alone", []
    hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(known)}"
    return OptionError(message, hint=hint, key=raw, value=value, nearest=near)
