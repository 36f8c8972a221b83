"""The one way out: a Renderer writes results to stdout and everything else to stderr."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Protocol, TextIO

from plait.cli.exits import Failure
from plait.cli.view import View
from plait.errors import plain

SCHEMA = "tablectl/v1"


@dataclass(frozen=True, slots=True)
class Streams:
    """Where ``tablectl`` reads and writes."""

    stdin: TextIO
    out: TextIO
    err: TextIO

    @property
    def interactive(self) -> bool:
        """Whether a person can be asked."""
        return self.stdin.isatty() and self.err.isatty()


class Renderer(Protocol):
    """Shows results and errors."""

    def show(self, view: View) -> None:
        """Write a result to stdout."""
        ...

    def preview(self, view: View) -> None:
        """Show a plan before a person is asked about it."""
        ...

    def error(self, failure: Failure, *, command: str, table: str | None) -> None:
        """Write an error to stderr."""
        ...


class JsonRenderer:
    """One JSON document a result, or one line an entry of a list. Additive only."""

    def __init__(self, streams: Streams, *, lines: bool) -> None:
        self._streams = streams
        self._lines = lines

    def show(self, view: View) -> None:
        """Write the envelope, or the entries when lines were asked for and it is a list."""
        if self._lines and view.items is not None:
            for item in view.items:
                self._write(self._streams.out, item)
        else:
            self._write(self._streams.out, _envelope(view.command, view.table, data=view.data))

    def preview(self, view: View) -> None:
        """Write the plan to stderr: stdout gets one document, when all is done."""
        self._write(self._streams.err, _envelope(view.command, view.table, data=view.data))

    def error(self, failure: Failure, *, command: str, table: str | None) -> None:
        """Write the error to stderr."""
        self._write(self._streams.err, _envelope(command, table, error=failure.to_dict()))

    @staticmethod
    def _write(stream: TextIO, value: object) -> None:
        """Write JSON; to a stream that does not take every character, in ASCII alone."""
        known = (stream.encoding or "utf-8").lower().replace("_", "-")
        stream.write(dump(value, ascii_only=known not in ("utf-8", "utf8")))


def _envelope(command: str, table: str | None, **content: object) -> dict[str, object]:
    return {"schema": SCHEMA, "command": command, "table": table, **content}


def dump(value: object, *, ascii_only: bool = False) -> str:
    """Write a value as one line of JSON; a set as a list, anything unknown as its text."""
    return f"{json.dumps(plain(value), ensure_ascii=ascii_only, allow_nan=False)}\n"
