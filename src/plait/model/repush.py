"""The repush that is to lay a table out anew (RFC 0021)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from plait.model.layout import TableLayout
from plait.model.repush_source import RepushSource

REPUSH_STREAM: Final = "repush"
"""The application of whose tokens the table in the directory tells how far it is."""
_DIRECTORY = re.compile(r"repush-[0-9a-f]{16}", re.ASCII)


def repush_directory(nonce: str) -> str:
    """Name the directory of a repush by the nonce of the instant that began it.

    >>> repush_directory("00000000000000ab")
    'repush-00000000000000ab'
    """
    return f"repush-{nonce}"


def is_repush_directory(name: str) -> bool:
    """Tell whether this is the name of a repush's directory."""
    return _DIRECTORY.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class OpenRepush:
    """A repush that was begun, and neither swapped in nor cancelled."""

    directory: str
    """Of the table that it builds, in the table's own directory."""
    base: int
    """The version since when it follows; every version from there on stays readable."""
    layout: TableLayout
    """What it leads to."""
    rows_per_task: int
    """How many rows one commit of the load takes, about."""
    properties: Mapping[str, object]
    """Options that change with the swap."""
    source: RepushSource | None = None
    """What it loads; None: the rows of its base."""
    commit_id: str | None = None
    """The commit id of its swap, if the caller named one."""

    @property
    def told(self) -> str:
        """What it loads, in words."""
        return "the table" if self.source is None else str(self.source.address)

    def to_dict(self) -> dict[str, object]:
        """Write it as JSON values."""
        return {
            "directory": self.directory,
            "base": self.base,
            "layout": self.layout.to_dict(),
            "rows_per_task": self.rows_per_task,
            "properties": dict(self.properties),
            **({} if self.source is None else {"source": self.source.to_dict()}),
            **({} if self.commit_id is None else {"commit_id": self.commit_id}),
        }

    @classmethod
    def from_dict(cls, value: object) -> OpenRepush:
        """Read what ``to_dict`` wrote; raise KeyError, TypeError or ValueError."""
        if not isinstance(value, dict):
            raise TypeError(value)
        directory, layout, properties = (
            value[name] for name in ("directory", "layout", "properties")
        )
        if not isinstance(layout, dict) or not isinstance(properties, dict):
            raise TypeError(value)
        if not isinstance(directory, str) or not is_repush_directory(directory):
            message = f"{directory!r} is not the directory of a repush"
            raise ValueError(message)
        return cls(
            directory,
            int(value["base"]),
            TableLayout.from_dict(layout),
            int(value["rows_per_task"]),
            properties,
            RepushSource.from_dict(value["source"]) if "source" in value else None,
            str(value["commit_id"]) if "commit_id" in value else None,
        )
