"""One application's stream into a table: its position, its epochs, its audit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from plait.definition.replicated_table import require_no_replicas
from plait.errors import OptionError, StreamError
from plait.model.decision import CommitResult, Span, Token
from plait.model.stream import Audit, Position
from plait.model.words import MissingColumns, OnConflict, OnDuplicate, WriteOperation
from plait.stream.audit import audit
from plait.stream.coordinator import Coordinator
from plait.stream.messages import offsets_text, position_offsets
from plait.stream.participant import Participant
from plait.stream.transport import Endpoint
from plait.txn.table_handle import TableHandle
from plait.write.request import write_request
from plait.write.writer import Writer

_NAME_MAX = 1024
_OFFSETS_MAX = 64 << 10


class Stream:
    """The stream of one application into a table: its position, its writers, its audit.

    Every epoch is one commit with the token (application, epoch, start, end). The table applies
    each token once, for ever. The same token again returns the first result. A token that does
    not continue the last one is an error.

    >>> import pyarrow as pa
    >>> from plait import Table
    >>> table = Table.create("memory://doc-stream", "id bigint")
    >>> stream = table.stream("loader")
    >>> for start, end in [("", "2"), ("2", "4")]:
    ...     with stream.writer("append", after=stream.position, end=end) as epoch:
    ...         epoch.write(pa.table({"id": range(int(start or 0), int(end))}))
    >>> stream.position.epoch, stream.position.end, table.scan().count()
    (1, '4', 4)
    """

    def __init__(self, handle: TableHandle, application: str) -> None:
        check_application(application)
        self._handle, self._application = handle, application

    @property
    def application(self) -> str:
        """The name of the application in the tokens."""
        return self._application

    @property
    def position(self) -> Position | None:
        """The last applied epoch in the newest version; None before the first epoch."""
        return self._handle.cache.refresh().streams.get(self._application)

    def writer(
        self,
        operation: WriteOperation = "append",
        *,
        after: Position | None,
        end: str,
        on_conflict: OnConflict = "retry",
        on_duplicate: OnDuplicate = "raise",
        missing_columns: MissingColumns = "raise",
    ) -> Writer:
        """Open a writer for the epoch after a position; it is used like ``Table.writer``.

        Args:
            operation: append, insert, upsert, overwrite or delete.
            after: the ``position`` from which the caller read the rows. Do not ask for it again:
                another process may have moved it since.
            end: the offsets where the rows end, as any text of the caller.
            on_conflict: ``retry``, which stages the conflicting buckets again; or ``raise``.
            on_duplicate: for ``insert``, if the key exists: ``raise`` or ``skip``.
            missing_columns: for ``upsert``, as in ``Table.writer``.

        Raises:
            StreamError: another process already continued from there, to other offsets.
        """
        if after is not None and after.token.application != self._application:
            message = f"the position belongs to stream {after.token.application!r}"
            hint = f"pass a position of {self._application!r}"
            raise OptionError(message, hint=hint, key="after", value=after.token.application)
        epoch, start = (0, "") if after is None else (after.epoch + 1, after.end)
        token = replace(self.token(epoch, start, end), offsets=(Span("", start, end),))
        return self.writer_of(
            token,
            operation,
            on_conflict=on_conflict,
            on_duplicate=on_duplicate,
            missing_columns=missing_columns,
        )

    def writer_of(
        self,
        token: Token,
        operation: str,
        *,
        on_conflict: str,
        on_duplicate: str,
        missing_columns: str = "raise",
    ) -> Writer:
        """Open a writer for a token that an engine created."""
        request = write_request(
            operation,
            self._handle.cache.known().table.spec,
            on_conflict=on_conflict,
            on_duplicate=on_duplicate,
            missing_columns=missing_columns,
            token=token,
        )
        return Writer(self._handle, request)

    def begin_at(self, *, epoch: int, end: str) -> CommitResult:
        """Begin a stream after this epoch: earlier ones are in the table already, or not wanted.

        Use it if the table does not know the application yet, for example after a rename.

        Raises:
            StreamError: the table already knows this application.
        """
        token = self.token(epoch, "", end)
        with self.writer_of(token, "append", on_conflict="retry", on_duplicate="raise") as writer:
            pass
        return writer.result

    def seek(self, offsets: Mapping[str, str], *, after: Position | None) -> CommitResult:
        """Set where sources are read next, by a decision without rows.

        For streams of several writers. What is passed over, and what is read again, stands in the
        timeline: the token goes from the old offset of each source to the new one. Sources that
        are not named stay where they are.

        Args:
            offsets: by source, as its writers write them. A source with "" is forgotten: if it
                ever comes again, it begins anew.
            after: the ``position`` from which the caller computed them. Do not ask for it again.

        Raises:
            OptionError: no source is named, or one is forgotten that the stream does not have.
            EpochUnknownError: the stream's position is not one of several writers.
            StreamError: another process has moved the stream since ``after``.
        """
        # The token goes from `after` to the new offsets, so of two seeks that race, one commits and
        # the other is refused (INV-09).
        before = position_offsets(self._application, after)
        unknown = [name for name, end in offsets.items() if not end and name not in before]
        if not offsets or unknown:
            message = "a seek names the sources of the stream, each with the offset to read next"
            value = ", ".join(unknown)
            raise OptionError(message, hint="pass {source: offset}", key="offsets", value=value)
        if self.position != after:  # the token would pass if this very seek was applied already
            at = "before its first epoch" if after is None else f"at epoch {after.epoch}"
            message = f"the stream {self._application!r} is no longer {at}"
            hint = "compute the seek again from its position"
            raise StreamError(message, hint=hint, application=self._application)
        epoch, start = (0, "") if after is None else (after.epoch + 1, after.end)
        spans = tuple(Span(name, before.get(name, ""), offsets[name]) for name in sorted(offsets))
        ends = {name: end for name, end in {**before, **offsets}.items() if end}
        token = self.token(epoch, start, offsets_text(ends))
        token = replace(token, offsets=spans)
        with self.writer_of(token, "append", on_conflict="retry", on_duplicate="raise") as writer:
            pass
        return writer.result

    def audit(self) -> Audit:
        """Read the whole timeline and check that every epoch continues the one before."""
        return audit(self._handle, self._application)

    def coordinator(
        self,
        endpoint: Endpoint,
        operation: WriteOperation = "append",
        *,
        on_conflict: OnConflict = "retry",
        on_duplicate: OnDuplicate = "raise",
    ) -> Coordinator:
        """Create the coordinator of several writers; see ``Coordinator``.

        Raises:
            OptionError: the table's definition names sinks, to which such writers cannot send.
        """
        require_no_replicas(self._handle.cache.known().table, "a stream of several writers")
        request = write_request(
            operation,
            self._handle.cache.known().table.spec,
            on_conflict=on_conflict,
            on_duplicate=on_duplicate,
        )
        return Coordinator(self._handle, self._application, request, endpoint)

    def participant(self, endpoint: Endpoint, name: str, *, label: str = "") -> Participant:
        """Create one of several writers; see ``Participant``.

        Args:
            endpoint: its end of the transport.
            name: tells it from the other writers of the stream.
            label: the names of its files have it, ``[A-Za-z0-9-]``, 20 characters at most.
        """
        return Participant(self._handle, self._application, endpoint, name, label=label)

    def token(self, epoch: int, start: str, end: str) -> Token:
        """Create a token of this application; raise OptionError for an invalid one."""
        if epoch < 0 or not end or max(len(start), len(end)) > _OFFSETS_MAX:
            message = f"epoch {epoch} to {end[:80]!r} is not an epoch of a stream"
            hint = f"epochs count from 0; offsets are texts of 1 to {_OFFSETS_MAX} characters"
            raise OptionError(message, hint=hint, key="end", value=end[:80])
        return Token(self._application, epoch, start, end)


def check_application(name: str) -> None:
    """Refuse a name that cannot stand in a token; raise OptionError."""
    if not name or len(name) > _NAME_MAX or not name.isprintable():
        message = f"invalid application name {name[:80]!r}"
        hint = f"use 1 to {_NAME_MAX} printable characters, and the same name at every start"
        raise OptionError(message, hint=hint, key="application", value=name[:80])
