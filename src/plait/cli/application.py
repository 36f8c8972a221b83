"""What every command is given: settings, the renderer, and a way to ask."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass

from plait.cli.exits import RefusedError
from plait.cli.render import JsonRenderer, Renderer, Streams
from plait.cli.text import TextRenderer
from plait.cli.view import Block, View
from plait.model.plain import iso

LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class Settings:
    """The options that every command shares."""

    json: bool = False
    jsonl: bool = False
    quiet: bool = False
    log_level: str = "warning"
    color: bool = True
    wide: bool = False
    debug: bool = False


class JsonLines(logging.Formatter):
    """Writes log entries as JSON objects."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        entry = {
            "time": iso(int(record.created * 1000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry)


class Application:
    """One call of ``tablectl``."""

    def __init__(self, settings: Settings, streams: Streams) -> None:
        self.settings = settings
        self.streams = streams
        self.command = ""
        self.uri: str | None = None
        self.expected: dict[str, str] = {}
        """What the caller takes the contract of the table to be, or parts of it."""
        self.allowed: tuple[str, ...] = ()
        """The places outside of tables that the caller allows, if their metadata names them."""

    @property
    def renderer(self) -> Renderer:
        """The renderer that the settings ask for."""
        if self.settings.json or self.settings.jsonl:
            return JsonRenderer(self.streams, lines=self.settings.jsonl)
        return TextRenderer(
            self.streams,
            color=self.settings.color,
            quiet=self.settings.quiet,
            wide=self.settings.wide,
        )

    @property
    def machine(self) -> bool:
        """Whether a program reads the output."""
        return self.settings.json or self.settings.jsonl

    def view(self, data: object, *blocks: Block, items: list[object] | None = None) -> View:
        """Make a result of the current command."""
        return View(self.command, self.uri, data, blocks, items)

    def show(self, data: object, *blocks: Block, items: list[object] | None = None) -> None:
        """Write the result to stdout.

        Args:
            data: plain values, for ``--json``.
            blocks: the same values for people.
            items: the entries, if the result is a list: ``--jsonl`` writes each on a line.
        """
        self.renderer.show(self.view(data, *blocks, items=items))
        self.streams.out.flush()

    def note(self, text: str) -> None:
        """Tell a person something that is not the result, on stderr."""
        if not (self.settings.quiet or self.machine):
            self.streams.err.write(f"{text}\n")
            self.streams.err.flush()

    def confirm(self, question: str, *, yes: bool) -> None:
        """Go on only if told to: by ``--yes``, or by a person at a terminal.

        Raises:
            RefusedError: nobody can be asked, or the answer is not yes.

        """
        if yes:
            return
        if not self.streams.interactive:
            message = f"{question} confirmation needs a terminal"
            raise RefusedError(message, hint="check the plan with --dry-run, then pass --yes")
        self.streams.err.write(f"{question} [y/N] ")
        self.streams.err.flush()
        if self.streams.stdin.readline().strip().lower() not in ("y", "yes"):
            raise RefusedError("not confirmed; nothing was done")

    def ask(self, question: str, data: object, *blocks: Block, yes: bool) -> None:
        """Show what would be done, unless a program said yes to it, and go on only if told to.

        Raises:
            RefusedError: see ``confirm``.

        """
        if not (self.machine and yes):
            self.renderer.preview(self.view(data, *blocks))
        self.confirm(question, yes=yes)

    def start_logging(self) -> None:
        """Send the library's log to stderr at the level that was asked for.

        Where a program reads the output, each entry is a JSON object on a line.
        """
        handler = logging.StreamHandler(self.streams.err)
        text = logging.Formatter("%(levelname)s %(name)s: %(message)s")
        handler.setFormatter(JsonLines() if self.machine else text)
        logger = logging.getLogger("plait")
        logger.handlers = [handler]
        logger.setLevel(self.settings.log_level.upper())
