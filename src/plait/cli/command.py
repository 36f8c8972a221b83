"""How commands are declared: shared options, examples, and loading on first use."""

from __future__ import annotations

import importlib
import keyword
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

import click

from plait.cli.application import LEVELS, Application
from plait.model.words import TABLE_TYPES

F = TypeVar("F", bound=Callable[..., None])
Value: TypeAlias = str | bool | None


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command as the list of commands shows it, without loading its module."""

    module: str
    help: str


def _set(context: click.Context, parameter: click.Parameter, value: Value) -> None:
    app = context.find_object(Application)
    if app is None or not value:
        return
    field = str(parameter.name)
    setting = False if field == "color" else value
    app.settings = replace(app.settings, **{field: setting})  # type: ignore[arg-type]  # one field by its name


def shared_options(*, hidden: bool) -> list[click.Parameter]:
    """Make the options that may stand before or after a command."""

    def option(*names: str, text: str, **more: object) -> click.Option:
        return click.Option(
            names,
            help=text,
            expose_value=False,
            callback=_set,
            hidden=hidden,
            **more,  # type: ignore[arg-type]  # passed through
        )

    return [
        option("--json", "json", is_flag=True, text="One JSON document on stdout."),
        option("--jsonl", "jsonl", is_flag=True, text="One JSON line for each entry of a list."),
        option("--quiet", "quiet", is_flag=True, text="Show only results and errors."),
        option(
            "--log-level",
            "log_level",
            type=click.Choice(LEVELS),
            text="Lowest level to log to stderr.",
        ),
        option("--no-color", "color", is_flag=True, text="No colour."),
        option("--wide", "wide", is_flag=True, text="Show all columns, on a narrow terminal too."),
        option("--debug", "debug", is_flag=True, text="Show the traceback of an error."),
    ]


class ReaderLeftError(Exception):
    """The reader of our output has gone, as ``head`` does."""


class Command(click.Command):
    """A command with two examples in its help, and the shared options."""

    def __init__(self, *args: object, examples: Sequence[str] = (), **attributes: object) -> None:
        super().__init__(*args, **attributes)  # type: ignore[arg-type]  # passed through
        self.examples = tuple(examples)
        self.params += shared_options(hidden=True)

    def invoke(self, ctx: click.Context) -> object:
        """Run it, and say which command and table the output is about."""
        app = ctx.find_object(Application)
        if app is not None:
            app.uri = ctx.params.get("uri")
            app.start_logging()
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            # click would end in 1; a reader that has seen enough is no failure
            raise ReaderLeftError from error

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: object,
    ) -> click.Context:
        """Parse; errors of parsing name the command too."""
        app = parent.find_object(Application) if parent is not None else None
        if app is not None:
            app.command = str(self.name)
        return super().make_context(info_name, args, parent, **extra)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        del ctx
        with formatter.section("Examples"):
            formatter.write("".join(f"  tablectl {line}\n" for line in self.examples))
        formatter.write_paragraph()
        formatter.write_text(
            "You can also use the options of tablectl itself here, such as --json."
        )


def command(name: str, *examples: str) -> Callable[[Callable[..., None]], Command]:
    """Declare a command that works on one table: ``function(app, uri, storage, ...)``.

    The function has the name of the command, with ``_`` for ``-``, and one more after a word of
    Python. Its docstring is the help.
    """

    def declare(function: Callable[..., None]) -> Command:
        for decorate in (table_options, click.argument("uri"), click.pass_obj):
            function = decorate(function)
        return bare_command(name, *examples)(function)

    return declare


def bare_command(name: str, *examples: str) -> Callable[[Callable[..., None]], Command]:
    """Declare a command that needs no table."""
    return click.command(name, cls=Command, examples=examples)


yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Show the plan and do nothing.")


def _pairs(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> dict[str, str]:
    del context
    return parse_pairs(value, what=parameter.opts[0])


def parse_pairs(values: Sequence[str], *, what: str) -> dict[str, str]:
    """Read ``key=value`` texts; raise a usage error for anything else, and for a key given twice.

    The error does not repeat the text, which may be a password.
    """
    pairs: dict[str, str] = {}
    for number, text in enumerate(values, 1):
        key, sign, value = text.partition("=")
        key = key.strip()
        if not (sign and key):
            raise click.UsageError(f"{what} takes key=value; number {number} has no key or no '='")
        if key in pairs:
            raise click.UsageError(f"{what} has {key!r} twice")
        pairs[key] = value
    return pairs


def pairs_option(name: str, field: str, text: str, *also: str) -> Callable[[F], F]:
    """Declare an option that is given again and again as ``key=value``; ``also``: other names."""
    names = (name, *also, field)
    return click.option(*names, multiple=True, callback=_pairs, metavar="KEY=VALUE", help=text)


storage_option = pairs_option(
    "--storage-option", "storage", "Option of the store, such as endpoint_url; repeatable."
)


def _expect(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> None:
    app = context.find_object(Application)
    if app is not None:
        app.expected = _pairs(context, parameter, value)


_expect_option = click.option(
    "--expect",
    multiple=True,
    expose_value=False,
    callback=_expect,
    metavar="PART=VALUE",
    help="Refuse a table whose contract differs: concurrency, lock, failed_writes; repeatable.",
)


def _allow(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> None:
    del parameter
    app = context.find_object(Application)
    if app is not None:
        app.allowed = value


allow_option = click.option(
    "--allow",
    multiple=True,
    expose_value=False,
    callback=_allow,
    metavar="ADDRESS",
    help="A place outside of the table that it may name and that is then used; repeatable.",
)


def table_options(function: F) -> F:
    """Declare how a command opens its table: ``--storage-option``, ``--allow``, ``--expect``."""
    return storage_option(allow_option(_expect_option(function)))


def definition_options(function: F) -> F:
    """Declare what a new table is: its key, layout, lock and properties.

    What is not named is None, or empty; the commands that create tables have their own defaults.
    """
    for decorate in reversed(
        (
            click.option(
                "--record-key",
                "--key",
                multiple=True,
                metavar="COLUMN",
                help="Record key; may be repeated.",
            ),
            click.option(
                "--partition-by",
                "--partition",
                multiple=True,
                metavar="COLUMN",
                help="Partition; may be repeated.",
            ),
            click.option(
                "--ordering", metavar="COLUMN", help="Ordering column: the greater value wins."
            ),
            click.option(
                "--table-type",
                "--type",
                type=click.Choice(TABLE_TYPES),
                help="The type of the table; by default cow.",
            ),
            click.option(
                "--buckets", type=click.IntRange(min=1), help="Number of buckets in each partition."
            ),
            click.option(
                "--bucket-by", multiple=True, metavar="COLUMN", help="Hash only this of the key."
            ),
            click.option("--lock", help="file, process, zookeeper://hosts/path or none."),
            pairs_option("--property", "properties", "An option of the table; may be repeated."),
        )
    ):
        function = decorate(function)
    return function


def copy_options(rows_per_task: int) -> Callable[[F], F]:
    """Declare how rows of a source are copied: ``--rows-per-task``, ``--source-option``."""

    def declare(function: F) -> F:
        rows = click.option(
            "--rows-per-task",
            type=click.IntRange(min=1),
            default=rows_per_task,
            show_default=True,
            help="Rows in one commit of the copy; a kill repeats one at most.",
        )
        reach = "What is needed to reach the source; repeatable."
        return rows(pairs_option("--source-option", "source_options", reach)(function))

    return declare


class LazyGroup(click.Group):
    """Loads the module of a command when it is called, not before."""

    def __init__(
        self, *args: object, entries: dict[str, CommandEntry], **attributes: object
    ) -> None:
        super().__init__(*args, **attributes)  # type: ignore[arg-type]  # passed through
        self.entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return every name, loaded or not."""
        del ctx
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command."""
        del ctx
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        module, function = importlib.import_module(entry.module), cmd_name.replace("-", "_")
        function += "_" if keyword.iskeyword(function) else ""
        found = getattr(module, function, None)
        if not isinstance(found, Command):
            message = f"{entry.module} has no function {function} with @command({cmd_name!r}, ...)"
            raise TypeError(message)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without loading them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self.entries.items()])
