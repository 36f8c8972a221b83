"""The messages between a coordinator and its writers: plain values, encoded as bytes.

A *turn* closes the turn before it and names the instant to write under from now on, so buffering
never waits. It also has the offsets in the table, so a lost message costs nothing. A *report* says
what a writer staged in a turn. An *acknowledgement* says which turns are decided. A *hello* asks
for the current turn. Each message has the identity of its table, because streams of two tables may
have one name and one transport.

Each message fits the schema of ``message_schema``, both when it is sent and when it is read.
As bytes they have the names of Hudi's RFC-32: START-COMMIT and END-COMMIT (a turn that begins anew,
and one that ends another), WRITE-STATUS, ACK-COMMIT; and HELLO. Each carries a hash of its body: a
message that was damaged on its way counts as lost.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import xxhash

from plait.errors import CorruptMetadataError, EpochUnknownError, FormatError, StreamError
from plait.model.document import load_json
from plait.model.instant import Instant
from plait.model.stream import Position
from plait.storage.port import check_path
from plait.stream.message_schema import (
    ACK,
    END,
    FAREWELL,
    HELLO,
    PROGRESS,
    START,
    STATUS,
    VERSION,
    body_misfit,
    misfit,
)

_log = logging.getLogger(__name__)

BYTES_MAX: Final = 16 << 20
"""Maximum size of a message; a larger one is not parsed."""
FILE_BYTES_MAX: Final = 256 << 20
"""Maximum size of a report that is stored in a file."""
_DEPTH_MAX: Final = 4
"""Maximum depth of the JSON: the envelope, the body, and the values in a body."""
TURNS_MAX: Final = 100
"""The largest number of turns of a coordinator that are open at once. So a writer that hears a turn
owes it reports of at most so many earlier ones, whatever number the turn has."""

Offsets = Mapping[str, str]
"""Where each source is read next, by name; texts that only the writers understand."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Report what you hold, and go on under this instant."""

    table: str
    session: str
    """Session of the coordinator. A later session is a greater text and begins anew."""
    number: int
    instant: Instant
    operation: str
    schema_id: int
    bucket_spec_id: int
    decided: int
    """Turns up to this one are decided: their reports need not be sent again."""
    offsets: Offsets
    """Offsets in the table, by source."""
    reset: bool
    """Whether writers must drop everything undecided and read on from ``offsets``."""
    lives: Mapping[str, str] = field(default_factory=dict)
    """The writers that take part, each with the life that counts."""
    revision: int = 0
    """Revision of ``lives`` in this session; it tells which of two copies of a turn is newer."""

    @property
    def age(self) -> tuple[int, int]:
        """Order of the copies of turns within a session: the newest is the greatest."""
        return self.number, self.revision


@dataclass(frozen=True, slots=True)
class Report:
    """What one writer staged in one turn."""

    table: str
    session: str
    writer: str
    life: str
    number: int
    starts: Offsets = field(default_factory=dict)
    ends: Offsets = field(default_factory=dict)
    rows: int = 0
    hash: int = 0
    """Hash of the rows; together with ``rows`` the digest of what the writer took."""
    flushes: int = 0
    runs: tuple[str, ...] = ()
    status: bytes = b""
    """A write status as Arrow streams; empty if there are no final files."""
    error: str = ""
    """Reason why the writer gave up its rows; empty if it did not."""
    file: str = ""
    """Where ``runs`` and ``status`` are, if they are too large for a message."""
    file_hash: str = ""
    """Hash of that file."""

    @property
    def idle(self) -> bool:
        """Whether nothing came, so that no file was written."""
        return not (self.rows or self.starts or self.error)


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Turns are decided."""

    table: str
    session: str
    decided: int
    """Turns up to this one."""
    offsets: Offsets
    """Offsets in the table, by source."""


@dataclass(frozen=True, slots=True)
class Hello:
    """A writer has come, or is not among those of the newest turn.

    The first one asks for the current turn. Only one that answers a turn counts the writer in: so
    a hello that a transport repeats later is not taken for a writer that has come.
    """

    table: str
    writer: str
    life: str
    """Random text that a writer draws at each start."""
    session: str = ""
    """Session of the coordinator whose turn it answers; empty if it answers none."""
    number: int = -1
    """Number of that turn."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a writer holds in the turn that is open."""

    table: str
    session: str
    writer: str
    life: str
    number: int
    rows: int
    bytes: int
    """Size in memory."""
    moved: bool = False
    """Whether an offset moved, with rows or without. If none did, the writer asks what became of
    what it reported."""
    urgent: bool = False
    """Whether the writer asks for the end of the turn, because it wants to go."""


@dataclass(frozen=True, slots=True)
class Farewell:
    """A writer goes. What it has not reported, another one will read."""

    table: str
    writer: str
    life: str


Message = Turn | Report | Acknowledgement | Hello | Progress | Farewell


def kind_of(message: Message) -> str:
    """Return the name of a message on its way.

    >>> kind_of(Hello("3bc3a691203ab6b9", "a", "1"))
    'HELLO'
    """
    if isinstance(message, Turn):
        return START if message.reset else END
    return _KINDS[type(message)]


_KINDS: Final[dict[type, str]] = {
    Report: STATUS,
    Acknowledgement: ACK,
    Hello: HELLO,
    Progress: PROGRESS,
    Farewell: FAREWELL,
}


class EncodedMessage(bytes):
    """A message as bytes, with its ``kind``, and the ``number`` of the turn that it is about.

    So a transport need not read it to know what it carries.
    """

    kind: str
    number: int
    """Number of the turn that it concerns; -1 if it concerns none."""


def encode(message: Message, *, bytes_max: int = BYTES_MAX) -> EncodedMessage:
    """Write a message as bytes, for whatever carries it.

    Raises:
        StreamError: no receiver would take it. To send it would be to wait for an answer in vain.
    """
    values: dict[str, object] = {}
    for name in message.__dataclass_fields__:
        value = getattr(message, name)
        if isinstance(value, bytes):
            value = base64.b64encode(value).decode("ascii")
        elif isinstance(value, Instant):
            value = str(value)
        elif isinstance(value, Mapping):
            value = dict(value)
        elif isinstance(value, tuple):
            value = list(value)
        values[name] = value
    kind = kind_of(message)
    envelope = {"version": VERSION, "kind": kind, "body": values, "check": _check(kind, values)}
    encoded = EncodedMessage(_text(envelope).encode())
    # The sender checks too: no receiver would take a bad message, and the sender would wait for an
    # answer that never comes.
    wrong = body_misfit(kind, values) or _contradiction(message)
    if not wrong and len(encoded) > bytes_max:
        wrong = f"it has {len(encoded)} bytes, and {bytes_max} are allowed"
    if wrong:
        text = f"a message {kind} of the stream cannot be sent: {wrong}"
        raise StreamError(text, hint="use fewer sources, and shorter names and offsets")
    encoded.kind, encoded.number = kind, getattr(message, "number", -1)
    return encoded


def decode(body: bytes, *, bytes_max: int = BYTES_MAX) -> Message:
    """Read what ``encode`` wrote; raise CorruptMetadataError for anything else.

    Whoever may write to the transport may send anything. What passes here fits the published
    schema, contradicts itself nowhere, and names no file outside of the table.
    """
    try:
        envelope = load_json(body, bytes_max=bytes_max, depth_max=_DEPTH_MAX)
        wrong = misfit(envelope)
        if wrong or not isinstance(envelope, dict):
            raise ValueError(wrong)
        kind, values = envelope["kind"], envelope["body"]
        # A damaged message counts as a lost one, and lost messages are sent again.
        if envelope["check"] != _check(kind, values):
            raise ValueError("its hash differs")
        found = _message_of(kind, values)
        wrong = _contradiction(found)
        if wrong:
            raise ValueError(wrong)
    except (ValueError, FormatError) as error:
        message = f"not a message of a stream: {type(error).__name__}: {str(error)[:500]}"
        raise CorruptMetadataError(
            message, path="", found=body[:80].decode("utf-8", "replace")
        ) from error
    return found


def _message_of(kind: str, values: dict[str, Any]) -> Message:
    if values.get("session"):
        Instant.parse(values["session"])  # one that is no time is later than every coordinator
    if kind in (START, END):
        return Turn(**{**values, "instant": Instant.parse(values["instant"])})
    if kind == STATUS:
        status = base64.b64decode(values["status"], validate=True)
        return Report(**{**values, "runs": tuple(values["runs"]), "status": status})
    for made, name in _KINDS.items():
        if name == kind:
            found: Message = made(**values)
            return found
    raise ValueError(kind)


def _contradiction(message: Message) -> str:
    """Say what is wrong between fields that are right for themselves; empty if nothing is.

    Raises:
        CorruptMetadataError: a path points outside of the table.
    """
    if isinstance(message, Turn) and message.decided >= message.number:
        return "a turn that has begun is decided"
    if isinstance(message, Hello) and bool(message.session) != (message.number >= 0):
        return "it answers a turn without a number, or without a session"
    if isinstance(message, Report):
        for path in filter(None, (*message.runs, message.file)):
            check_path(path)
        lists = bool(message.runs or message.status)
        if message.starts.keys() != message.ends.keys():
            return "the sources that begin are not those that end"
        if not message.starts and (lists or message.file or message.rows or message.flushes):
            return "there are rows of no source"
        if bool(message.file) != bool(message.file_hash) or (lists and message.file):
            return "what it lists is in a file and in the message, or the file has no hash"
    return ""


def _check(kind: object, values: object) -> str:
    return xxhash.xxh3_64_hexdigest(_text([kind, values]).encode())


def _text(values: object) -> str:
    return json.dumps(values, separators=(",", ":"), sort_keys=True)


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
    offsets = load_json(text.encode(), bytes_max=BYTES_MAX, depth_max=1) if text else {}
    if not isinstance(offsets, dict) or not all(isinstance(v, str) for v in offsets.values()):
        raise ValueError(text)
    return offsets


def position_offsets(application: str, position: Position | None) -> dict[str, str]:
    """Return the offsets of every source at a position of a stream of several writers.

    Raises:
        EpochUnknownError: one writer wrote this stream, in texts of its own.
    """
    if position is None:
        return {}
    try:
        return parse_offsets(position.end)
    except ValueError:
        message = f"stream {application!r} is at {position.end[:80]!r}"
        hint = "a stream with several writers needs its own name"
        raise EpochUnknownError(message, hint=hint, end=position.end) from None
