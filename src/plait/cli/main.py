"""The entry point: find the command, run it, turn every error into text and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

import click

from plait.cli.application import Application, Settings
from plait.cli.command import CommandEntry, LazyGroup, ReaderLeftError, shared_options
from plait.cli.exits import Exit, failure_of
from plait.cli.render import Streams

_TABLES = "plait.cli.commands.tables"
_TIMELINE = "plait.cli.commands.timeline"
_SERVICES = "plait.cli.commands.services"

ENTRIES = {
    "create": CommandEntry(_TABLES, "Create a table."),
    "describe": CommandEntry(_TABLES, "Say what a table is and how large."),
    "schema": CommandEntry(_TABLES, "List the columns."),
    "files": CommandEntry(_TABLES, "List the live files."),
    "set": CommandEntry(_TABLES, "Set properties of a table, or parts of its contract."),
    "history": CommandEntry(_TIMELINE, "List decisions, newest first."),
    "timeline": CommandEntry(_TIMELINE, "Show who wrote when, and who overlapped whom."),
    "diff": CommandEntry(
        "plait.cli.commands.changes", "Count and show the rows that commits changed."
    ),
    "locks": CommandEntry(
        "plait.cli.commands.locks", "Tell who holds the lock of a table, and since when."
    ),
    "rollback": CommandEntry(_SERVICES, "Roll back an instant, or all whose writers are dead."),
    "clean": CommandEntry(_SERVICES, "Delete files that no reader may need any more."),
    "conflict": CommandEntry(
        "plait.cli.commands.conflict", "Tell whom an instant met, and what that meant."
    ),
    "stream": CommandEntry(
        "plait.cli.commands.stream", "Prove that each epoch of a stream continues the last."
    ),
    "probe": CommandEntry(
        "plait.cli.commands.probe", "Race calls on a store to see whether it can be written."
    ),
    "verify": CommandEntry(_SERVICES, "Check the invariants on the table as it is."),
    "explain": CommandEntry("plait.cli.commands.explain", "Explain an error code."),
}


def _version(context: click.Context, _parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's signature
    if not value or context.resilient_parsing:
        return
    try:
        text = version("plait")
    except PackageNotFoundError:
        text = "unknown (not installed)"
    click.echo(f"tablectl {text}")
    context.exit()


ROOT = LazyGroup(
    "tablectl",
    entries=ENTRIES,
    help="Look at Plait tables, and look after them.",
    epilog="Exit codes and JSON shapes: docs/reference/cli.md. An error: tablectl explain CODE.",
    params=[
        *shared_options(hidden=False),
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_version,
            help="Show the version.",
        ),
    ],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def main(
    argv: Sequence[str] | None = None,
    streams: Streams | None = None,
    *,
    root: click.Command = ROOT,
) -> int:
    """Run ``tablectl`` and return its exit code. Never raises, but for a second interrupt.

    Args:
        argv: The arguments; by default those of the process.
        streams: Where to read and write; by default those of the process.
        root: A program that reports and fails as ``tablectl`` does.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    channels = streams or Streams(sys.stdin, sys.stdout, sys.stderr)
    settings = Settings(json="--json" in args, color=not os.environ.get("NO_COLOR"))
    app = Application(settings, channels)
    if not args and root is ROOT:
        channels.err.write(ROOT.get_help(click.Context(ROOT, info_name="tablectl")) + "\n")
        return int(Exit.USAGE)
    try:
        outcome = root.main(args, prog_name=root.name, standalone_mode=False, obj=app)
        return int(outcome or 0)
    except ReaderLeftError:
        return _reader_left()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the top: every error is shown
        return _fail(app, error)


def _fail(app: Application, error: BaseException) -> int:
    failure = failure_of(error, command=app.command)
    if app.settings.debug:
        traceback.print_exception(error, file=app.streams.err)
    app.renderer.error(failure, command=app.command, table=app.uri)
    return int(failure.exit)


def _reader_left() -> int:
    """End quietly: the reader of our output has seen enough, as ``head`` does."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return int(Exit.DONE)
