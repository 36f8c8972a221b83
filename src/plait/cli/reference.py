"""The reference pages that are made from the code: commands, exit codes, errors.

``python -m plait.cli.reference docs/reference`` writes them; with ``--check`` it only compares,
and ends in exit code 1 if a page is stale.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from plait import errors
from plait.cli.exits import MEANING, exit_for
from plait.cli.explanations import PAGE, load_page
from plait.cli.main import ENTRIES, ROOT

_NOTE = "<!-- made by `python -m plait.cli.reference docs/reference`; do not edit -->\n\n"

_INTRO = """# tablectl

    tablectl [OPTIONS] COMMAND URI ...

Options of `tablectl` itself may stand before or after the command:

| option | meaning |
|---|---|
| `--json` | one JSON document on stdout |
| `--jsonl` | one JSON line an entry, for lists |
| `--quiet` | only results and errors |
| `--log-level LEVEL` | log to stderr: debug, info, warning (default), error |
| `--no-color` | no colour; so does the environment variable `NO_COLOR` |
| `--debug` | show the trace of an error |

Results go to stdout, everything else to stderr: notes, questions, logs, and errors too, also in
JSON.

`--json` prints one document: `{"schema": "tablectl/v1", "command": ..., "table": ...,
"data": ...}`; an error has `"error"` in place of `"data"`. `--jsonl` prints the entries of a
list, one a line, without the envelope; a command whose result is no list prints the document.
Times are ISO-8601 in UTC, sizes are bytes. Fields are only ever added.

A command that deletes prints its plan, asks at a terminal, and needs `--yes` anywhere else.
`--dry-run` stops after the plan; what is done is exactly what the plan says.

`URI` is a directory or a URL. `--storage-option KEY=VALUE` is handed to its store, such as
`endpoint_url`.
"""


def pages() -> Mapping[str, str]:
    """Make every page, by file name."""
    return {"cli.md": _cli_page(), PAGE: _NOTE + load_page()}


def _cli_page() -> str:
    parts = [_NOTE + _INTRO, "## Exit codes\n", _exit_table(), "## Commands\n"]
    context = click.Context(ROOT, info_name="tablectl", help_option_names=["-h", "--help"])
    for name in ENTRIES:
        command = ROOT.get_command(context, name)
        if command is not None:
            parts.append(_command_section(name, command, context))
    return "\n".join(parts)


def _exit_table() -> str:
    lines = ["| code | meaning | errors |", "|---|---|---|"]
    by_exit: dict[int, list[str]] = {}
    for kind in _tree(errors.TableError):
        by_exit.setdefault(exit_for(kind), []).append(f"`{kind.code}`")
    for code, meaning in MEANING.items():
        lines.append(f"| {int(code)} | {meaning} | {', '.join(by_exit.get(code, []))} |")
    return "\n".join(lines) + "\n"


def _tree(root: type[errors.TableError]) -> Iterator[type[errors.TableError]]:
    for kind in root.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield kind
            yield from _tree(kind)


def _command_section(name: str, command: click.Command, parent: click.Context) -> str:
    context = click.Context(command, info_name=name, parent=parent)
    formatter = click.HelpFormatter(width=100)
    command.format_help(context, formatter)
    return f"### {name}\n\n```text\n{formatter.getvalue().rstrip()}\n```\n"


def main(argv: list[str] | None = None) -> int:
    """Write or check the pages."""
    parser = argparse.ArgumentParser(prog="python -m plait.cli.reference")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args(argv)
    stale = []
    for name, text in pages().items():
        path: Path = arguments.directory / name
        if arguments.check:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                stale.append(str(path))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if stale:
        sys.stderr.write(f"stale: {', '.join(stale)}; make them anew without --check\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
