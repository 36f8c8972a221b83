"""The name of a stream as one table's: on a shared transport another table may use it too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Never

from plait.errors import StreamError
from plait.stream.messages import Turn


@dataclass(slots=True)
class OwnName:
    """The name that a writer uses, until a coordinator of another table answers to it."""

    application: str
    table: str
    """The table's identity."""
    _error: StreamError | None = None

    def refuse(self, turn: Turn) -> Never:
        """Refuse a turn of another table, now and at each later call of ``require``.

        Its coordinator would commit the rows of this table into the other one.

        Raises:
            StreamError: always.
        """
        self._error = name_taken(self.application, self.table, turn.table)
        raise self._error

    def require(self) -> None:
        """Raise StreamError if a turn was refused."""
        if self._error is not None:
            raise self._error


def name_taken(application: str, table: str, other: str) -> StreamError:
    """Return the error that another table uses the name of a stream."""
    message = f"the name {application!r} is used by another table, whose processes answer"
    hint = "use another application name; for a sink, pass another --name"
    return StreamError(message, hint=hint, application=application, table=table, other=other)
