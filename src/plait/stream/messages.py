"""The messages between a coordinator and its writers: plain values, encoded as bytes.

There are three kinds. A *turn* closes the turn before it and names the instant to write under from
now on, so buffering never waits. It also has the offsets in the table, so a lost message costs
nothing. A *report* says what a writer staged in a turn. A *hello* asks for the current turn.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from plait.errors import CorruptMetadataError, FormatError
from plait.model.instant import Instant

_log = logging.getLogger(__name__)

Offsets = Mapping[str, str]
"""Where each source is read next, by name; texts that only the writers understand."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Report what you hold, and go on under this instant."""

    session: str
    """Of the coordinator: another one begins anew. The text of a later one is greater."""
    number: int
    instant: Instant
    operation: str
    schema_id: int
    bucket_spec_id: int
    decided: int
    """Turns up to this one are decided: their reports need not be sent again."""
    offsets: Offsets
    """How far the table is."""
    reset: bool
    """Nothing that is undecided will be: drop it, and read on from ``offsets``."""
    lives: Mapping[str, str] = field(default_factory=dict)
    """The writers that take part, each with the life that counts."""


@dataclass(frozen=True, slots=True)
class Report:
    """What one writer staged in one turn."""

    session: str
    writer: str
    life: str
    number: int
    starts: Offsets = field(default_factory=dict)
    ends: Offsets = field(default_factory=dict)
    rows: int = 0
    hash: int = 0
    """With the rows the digest of what it took."""
    flushes: int = 0
    runs: tuple[str, ...] = ()
    status: bytes = b""
    """A write status as Arrow streams; empty if there are no final files."""
    error: str = ""
    """Why this writer cannot go on with what it took."""

    @property
    def idle(self) -> bool:
        """Whether nothing came, so that no file was written."""
        return not (self.rows or self.starts or self.error)


@dataclass(frozen=True, slots=True)
class Hello:
    """A writer has come, and knows no turn."""

    writer: str
    life: str
    """Random, another one at each start."""


Message = Turn | Report | Hello


def encode(message: Message) -> bytes:
    """Write a message as bytes, for whatever carries it."""
    values: dict[str, object] = {"kind": type(message).__name__.lower()}
    for name in message.__dataclass_fields__:
        value = getattr(message, name)
        if isinstance(value, bytes):
            value = base64.b64encode(value).decode("ascii")
        elif isinstance(value, Instant):
            value = str(value)
        elif isinstance(value, Mapping):
            value = dict(value)
        values[name] = value
    return json.dumps(values, separators=(",", ":"), sort_keys=True).encode()


def decode(body: bytes) -> Message:
    """Read what ``encode`` wrote; raise CorruptMetadataError for anything else."""
    try:
        values = json.loads(body)
        kind = values.pop("kind")
        if kind == "turn":
            return Turn(**{**values, "instant": Instant.parse(values["instant"])})
        if kind == "report":
            status = base64.b64decode(values["status"], validate=True)
            return Report(**{**values, "runs": tuple(values["runs"]), "status": status})
        if kind == "hello":
            return Hello(**values)
        raise ValueError(kind)
    except (AttributeError, KeyError, TypeError, ValueError, FormatError, RecursionError) as error:
        message = f"not a message of a stream: {type(error).__name__}: {error}"
        raise CorruptMetadataError(
            message, path="", found=body[:80].decode("utf-8", "replace")
        ) from error


def understood(body: bytes) -> Message | None:
    """Read a message; None for one that is not ours, which others may send on a shared topic."""
    try:
        return decode(body)
    except CorruptMetadataError as error:
        _log.warning("ignored a message: %s", error)
        return None


def offsets_text(offsets: Offsets) -> str:
    """Write offsets as they stand in a token: one text for one meaning.

    >>> offsets_text({"b": "2", "a": "1"})
    '{"a":"1","b":"2"}'
    """
    return json.dumps(dict(offsets), separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def parse_offsets(text: str) -> dict[str, str]:
    """Read offsets of a token; raise ValueError for what a coordinator did not write."""
    try:
        offsets = json.loads(text) if text else {}
    except RecursionError:  # nested without end
        offsets = None
    if not isinstance(offsets, dict) or not all(isinstance(v, str) for v in offsets.values()):
        raise ValueError(text)
    return offsets
