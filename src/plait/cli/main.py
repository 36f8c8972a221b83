"""The entry point: find the command, run it, turn every error into text and an exit code."""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Sequence

import click

from plait import __version__
from plait.cli.application import Application, Settings
from plait.cli.command import CommandEntry, LazyGroup, ReaderLeftError, shared_options
from plait.cli.exits import Exit, failure_of
from plait.cli.render import Streams

_CONCURRENCY = "plait.cli.commands.concurrency"
_TABLES = "plait.cli.commands.tables"
_TIMELINE = "plait.cli.commands.timeline"
_COMPACTION = "plait.cli.commands.compaction"
_SERVICES = "plait.cli.commands.services"
_UPGRADE = "plait.cli.commands.upgrade"
_RESTORES = "plait.cli.commands.restores"
_CATALOGS = "plait.cli.commands.catalogs"

ENTRIES = {
    "create": CommandEntry(_TABLES, "Create a table."),
    "list": CommandEntry(_CATALOGS, "List the tables of a catalog, and its namespaces."),
    "namespace": CommandEntry(
        _CATALOGS,
        "Create a namespace, and the catalog with the first one; or drop it.",
    ),
    "rename": CommandEntry(
        _CATALOGS, "Give a table of a catalog another name; its files stay where they are."
    ),
    "drop": CommandEntry(
        _CATALOGS, "Drop a table of a catalog: nobody reads or writes it any more."
    ),
    "undrop": CommandEntry(
        _CATALOGS, "Take the drop of a table back; tablectl list --dropped shows where it is."
    ),
    "purge": CommandEntry(
        _CATALOGS, "Delete the files of dropped tables whose grace is over, and that nobody reads."
    ),
    "serve-catalog": CommandEntry(
        "plait.cli.commands.serve_catalog",
        "Serve a catalog to engines that read Iceberg, until it is stopped.",
    ),
    "describe": CommandEntry(_TABLES, "Show what a table is and how large."),
    "schema": CommandEntry(_TABLES, "List the columns."),
    "files": CommandEntry(_TABLES, "List the live files."),
    "set": CommandEntry(_TABLES, "Set properties of a table, its time to live, or its contract."),
    "alter": CommandEntry("plait.cli.commands.alter", "Change the columns of a table."),
    "upgrade": CommandEntry(_UPGRADE, "Let a table use more features of the format."),
    "downgrade": CommandEntry(
        _UPGRADE,
        "Let a table use fewer features of the format, so that older clients can use it.",
    ),
    "history": CommandEntry(_TIMELINE, "List decisions, newest first."),
    "timeline": CommandEntry(_TIMELINE, "Show who wrote when, and which writers overlapped."),
    "compare": CommandEntry(
        "plait.cli.commands.compare", "Compare the rows of two tables or versions."
    ),
    "diff": CommandEntry(
        "plait.cli.commands.diff", "Count and show the rows that commits changed."
    ),
    "locks": CommandEntry(_CONCURRENCY, "Show who holds the lock of a table, and since when."),
    "writers": CommandEntry(
        _CONCURRENCY, "List the writers that are at work, and those that died."
    ),
    "readers": CommandEntry(
        _CONCURRENCY, "List the readers that keep old versions from being cleaned."
    ),
    "rollback": CommandEntry(_SERVICES, "Roll back an instant, or all instants of dead writers."),
    "cluster": CommandEntry(
        _COMPACTION, "Put rows that are near in some columns next to each other."
    ),
    "archive": CommandEntry(_COMPACTION, "Move old decisions from their slots into a few files."),
    "optimize": CommandEntry(_COMPACTION, "Do all upkeep of a table that falls due."),
    "publish": CommandEntry(
        "plait.cli.commands.publish",
        "Publish what is missing, in each format that the property publish names.",
    ),
    "services": CommandEntry(_COMPACTION, "Keep tables in shape until it is stopped."),
    "clean": CommandEntry(_SERVICES, "Let go of old versions, and delete files that nobody needs."),
    "compact": CommandEntry(
        _COMPACTION,
        "Merge log files, small files, and files with many hidden rows.",
    ),
    "repush": CommandEntry(
        "plait.cli.commands.repush", "Lay a table out anew while others read and write it."
    ),
    "import": CommandEntry(
        "plait.cli.commands.importing",
        "Create a table from Parquet, Delta, Iceberg, Hudi or Plait.",
    ),
    "expire": CommandEntry(
        "plait.cli.commands.expiry", "Take rows away whose time to live is over."
    ),
    "foreign": CommandEntry(
        "plait.cli.commands.foreign",
        "List the files that no decision names, and whose they are; or remove them.",
    ),
    "savepoint": CommandEntry(
        _RESTORES, "Keep a version readable under a name, or list the savepoints."
    ),
    "restore": CommandEntry(_RESTORES, "Give the table the rows of an older version."),
    "undo": CommandEntry(_RESTORES, "Undo the newest commit of rows."),
    "replay": CommandEntry(_RESTORES, "Let what a restore undid be applied again."),
    "conflict": CommandEntry(
        _CONCURRENCY, "Show which commits an instant conflicted with, and the outcome."
    ),
    "stream": CommandEntry(
        "plait.cli.commands.stream",
        "Check that each epoch of a stream continues the previous one, or set where it continues.",
    ),
    "sink": CommandEntry(
        "plait.cli.commands.sink",
        "Write a Kafka topic into a table, exactly once, until it is stopped.",
    ),
    "replicas": CommandEntry(
        "plait.cli.commands.replicas",
        "Name the sinks of a table, show how far they are from it, or set one right row by row.",
    ),
    "probe": CommandEntry(
        "plait.cli.commands.probe", "Race calls on a store to test whether it can be written."
    ),
    "verify": CommandEntry(_SERVICES, "Check the invariants on the table as it is."),
    "repair": CommandEntry(
        "plait.cli.commands.repair", "Mend what verify finds, where the mend is provably right."
    ),
    "metadata": CommandEntry(
        "plait.cli.commands.repair",
        "Make the bounds of columns again that the table's metadata lacks.",
    ),
    "index": CommandEntry(
        "plait.cli.commands.index",
        "Build, drop, show or check the record index, which finds rows by key.",
    ),
    "explain": CommandEntry("plait.cli.commands.explain", "Explain an error code."),
}


ROOT = LazyGroup(
    "tablectl",
    entries=ENTRIES,
    help="Inspect and maintain Plait tables.",
    epilog="For an error: tablectl explain CODE. Exit codes and JSON: docs/reference/cli.md.",
    params=shared_options(hidden=False),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
click.version_option(__version__, prog_name="tablectl", message="%(prog)s %(version)s")(ROOT)


def main(
    argv: Sequence[str] | None = None,
    streams: Streams | None = None,
    *,
    root: click.Command = ROOT,
) -> int:
    """Run ``tablectl`` and return its exit code. It never raises, except for a second interrupt.

    Args:
        argv: The arguments; by default those of the process.
        streams: Where to read and write; by default those of the process.
        root: A program that reports results and errors as ``tablectl`` does.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    channels = streams or _process_streams()
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


def _process_streams() -> Streams:
    """Return the streams of the process; in a locale without UTF-8 they escape other characters."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    return Streams(sys.stdin, sys.stdout, sys.stderr)


def _fail(app: Application, error: BaseException) -> int:
    failure = failure_of(error, command=app.command)
    if app.settings.debug:
        traceback.print_exception(error, file=app.streams.err)
    app.renderer.error(failure, command=app.command, table=app.uri)
    return int(failure.exit)


def _reader_left() -> int:
    """End quietly: the reader of the output has closed it, as ``head`` does."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return int(Exit.DONE)
