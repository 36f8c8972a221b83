"""Which parts of a table's definition can change while it is written, and how.

The hints of errors and a table in the docs are made from this list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from plait.errors import OptionError

LIVE, QUIET, NEVER = "yes", "no, only while no other writer is alive", "never"
BY_REPUSH: Final = "a repush"


@dataclass(frozen=True, slots=True)
class DefinitionChange:
    """How one thing that defines a table is changed."""

    what: str
    """The thing, in words."""
    live: str
    """Whether while others write."""
    how: str
    """What does it; text of Markdown."""

    @property
    def row(self) -> str:
        """Return it as a row of the table in the docs."""
        return f"| {self.what} | {self.live} | {self.how} |"


def _repush(what: str, name: str, value: str) -> DefinitionChange:
    option = name.replace("_", "-").removeprefix("table-")
    how = f"`Table.layout.repush({name}={value})`, `tablectl repush URI --{option} ...`"
    return DefinitionChange(what, LIVE, f"{BY_REPUSH}: {how}")


def _contract(what: str, name: str) -> DefinitionChange:
    how = f"`Table.alter.contract({name}=...)`, `tablectl set URI contract.{name}=...`"
    return DefinitionChange(what, QUIET, how)


CHANGES: Final[Mapping[str, DefinitionChange]] = {
    "buckets": _repush("the number of buckets", "buckets", "64"),
    "bucket_by": _repush("the columns that are hashed into buckets", "bucket_by", '"id"'),
    "partition_by": _repush("the partition columns and transforms", "partition_by", '"day"'),
    "ordering": _repush("the ordering column", "ordering", '"ts"'),
    "table_type": DefinitionChange(
        "the table type, `cow` or `mor`",
        LIVE,
        f'{BY_REPUSH}: `Table.layout.repush(table_type="mor")`, '
        "`tablectl repush URI --table-type ...`",
    ),
    "sort_by": DefinitionChange(
        "the order of rows in a bucket",
        "yes; in files as upkeep rewrites them",
        '`Table.alter.set({"cluster.by": "day"})` and '
        "clustering; for all files at once a repush: "
        '`Table.layout.repush(sort_by="day")`, `tablectl repush URI --sort-by ...`',
    ),
    "compression": DefinitionChange(
        "the codec of data files and its level",
        "yes; for files that are written from then on",
        '`Table.alter.set({"file.compression": "zstd"})`; for all files a repush: '
        '`Table.layout.repush(properties={"file.compression": "zstd"})`',
    ),
    "properties": DefinitionChange(
        "other options, such as sizes, retention and upkeep",
        "yes, at once",
        "`Table.alter.set`, `tablectl set URI KEY=VALUE`",
    ),
    "ttl": DefinitionChange(
        "the time to live", "yes, at once", "`Table.alter.set_ttl`, `tablectl set URI ttl=...`"
    ),
    "replicas": DefinitionChange(
        "the sinks that the table names",
        "yes, at once",
        "`Table.replicas.add`, `tablectl replicas add URI --replica ...`",
    ),
    "concurrency": _contract("the concurrency mode", "concurrency"),
    "lock": _contract("the lock", "lock"),
    "failed_writes": _contract("the failed-write policy", "failed_writes"),
    "record_key": DefinitionChange("the record key", NEVER, "a new table"),
    "schema": DefinitionChange(
        "the columns", LIVE, "`Table.alter.columns()`, `tablectl alter URI 'ADD COLUMN ...'`"
    ),
    "checks": DefinitionChange(
        "constraints: `CHECK` and `NOT NULL`",
        LIVE,
        "`Table.alter.columns().add_check(...)`, "
        "`tablectl alter URI 'ADD CONSTRAINT n CHECK (...)'`",
    ),
    "generated": DefinitionChange(
        "what columns are generated from",
        LIVE,
        "`Table.alter.columns().generate(...)`, "
        "`tablectl alter URI 'ALTER COLUMN c SET EXPRESSION AS (...)'`",
    ),
    "policy": DefinitionChange("the conflict policy", NEVER, "a new table"),
    "isolation": DefinitionChange("the isolation", NEVER, "a new table"),
    "unique": DefinitionChange("where keys are unique", NEVER, "a new table"),
}
"""By the name that it has as an argument of ``Table.create`` or ``Table.layout.repush``."""


def refuse_defining(values: Mapping[str, object]) -> None:
    """Refuse what people take for an option, and is changed otherwise.

    Raises:
        OptionError: a name of ``CHANGES``; the hint says how it is changed.
    """
    for key in values:
        change = CHANGES.get(key)
        if change is None:
            continue
        message = f"{key!r} is not an option: it says {change.what}".replace("`", "")
        if change.live == NEVER:
            hint = "it never changes; create a new table"
        else:
            hint = f"to change it: {change.how}".replace("`", "")
        raise OptionError(message, hint=hint, key=key, value=values[key])
