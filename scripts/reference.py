"""Write the pages of docs/reference that are made from the code; ``--check`` only compares them.

The JSON Schema of the messages of streams is made, too: the code checks them by the same rules.

Commands come from their help texts, exit codes from their table, errors from ``cli/errors.md``,
options from the registry, conflicts from the matrix, the API from the docstrings of public names.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Literal, get_origin

import click

import plait
from plait import errors
from plait.cli.commands.explain import PAGE, load_page
from plait.cli.exits import MEANING as EXIT_MEANING
from plait.cli.exits import exit_for
from plait.cli.main import ENTRIES, ROOT
from plait.definition.policy import POLICIES, Verdict
from plait.model import words
from plait.model.contract import OPTIONS, Option
from plait.stream.message_schema import SCHEMA
from plait.txn.matrix import KINDS, MATRIX, Kind, Meets

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts import column_matrix

DIRECTORY = Path(__file__).resolve().parent.parent / "docs" / "reference"
SPEC = "../spec/"
INTERNAL = frozenset(
    {
        "ChangeScan.divided",
        "ChangeScan.keep",
        "ChangeScan.store",
        "ChangeScan.where",
        "ChangeScan.window",
        "Finding.cut",
        "Participant.spec",
        "Pinned.store",
        "Replication.require",
        "Replication.require_removals",
        "Replication.staging",
        "Scan.keep",
        "Scan.plan",
        "Scan.read_predicate",
        "Scan.snapshot",
        "Scan.store",
        "Stream.writer_of",
    }
)
"""Members without an underscore that only Plait's own engines use; not public interface."""
NOTE = "<!-- made by scripts/reference.py (make reference); do not edit -->\n\n"


def main() -> int:
    """Write the pages, or say which are stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a page is stale")
    check = parser.parse_args().check
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    stale = []
    for name, text in pages().items():
        path = DIRECTORY / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not check:
            path.write_text(text, encoding="utf-8")
    if stale:
        print(f"{'stale' if check else 'written'}: {', '.join(stale)}")
    if stale and check:
        print("run: make reference")
    return 1 if stale and check else 0


def pages() -> Mapping[str, str]:
    """Make every page, by file name."""
    return {
        f"{SPEC}messages.schema.json": json.dumps(SCHEMA, indent=2) + "\n",
        "cli.md": cli_page(),
        PAGE: NOTE + load_page(),
        "options.md": options_page(),
        "conflicts.md": conflicts_page(),
        "column-changes.md": column_changes_page(),
        "api.md": api_page(),
    }


CLI_INTRO = """# tablectl

    tablectl [OPTIONS] COMMAND URI ...

You can write the options of `tablectl` itself before or after the command:

| option | meaning |
|---|---|
| `--json` | one JSON document on stdout |
| `--jsonl` | one JSON line for each entry of a list |
| `--quiet` | show only results and errors |
| `--log-level LEVEL` | log to stderr: debug, info, warning (default), error |
| `--no-color` | no colour; the environment variable `NO_COLOR` has the same effect |
| `--debug` | show the traceback of an error |

Results go to stdout. Everything else goes to stderr: notes, questions, logs and errors,
also with `--json`.

`--json` prints one document: `{"schema": "tablectl/v1", "command": ..., "table": ...,
"data": ...}`; an error has `"error"` instead of `"data"`. `--jsonl` prints the entries of a
list, one on each line, without the envelope; a command whose result is not a
list prints the document. Times are ISO-8601 in UTC, and sizes are bytes. New versions only add
fields.

A command that deletes prints its plan. It asks for confirmation at a terminal and needs `--yes`
anywhere else. `--dry-run` stops after the plan. The command does exactly what the plan says.

`URI` is a directory or a URL. `--storage-option KEY=VALUE` passes an option to its store, such as
`endpoint_url`.
"""


def cli_page() -> str:
    """Make the page of the commands and their exit codes."""
    parts = [NOTE + CLI_INTRO, "## Exit codes\n", exit_table(), "## Commands\n"]
    context = click.Context(ROOT, info_name="tablectl", help_option_names=["-h", "--help"])
    for name in ENTRIES:
        command = ROOT.get_command(context, name)
        if command is not None:
            parts.append(command_section(name, command, context))
    return "\n".join(parts)


def exit_table() -> str:
    """Return the table of exit codes with the errors that end in each."""
    lines = ["| code | meaning | errors |", "|---|---|---|"]
    by_exit: dict[int, list[str]] = {}
    for kind in error_classes(errors.TableError):
        by_exit.setdefault(exit_for(kind), []).append(f"`{kind.code}`")
    for code, meaning in EXIT_MEANING.items():
        lines.append(f"| {int(code)} | {meaning} | {', '.join(by_exit.get(code, []))} |")
    return "\n".join(lines) + "\n"


def error_classes(root: type[errors.TableError]) -> Iterator[type[errors.TableError]]:
    """Yield the classes of errors below one, each before its own."""
    for kind in root.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield kind
            yield from error_classes(kind)


def command_section(name: str, command: click.Command, parent: click.Context) -> str:
    """Return the help text of a command as a section."""
    context = click.Context(command, info_name=name, parent=parent)
    formatter = click.HelpFormatter(width=100)
    command.format_help(context, formatter)
    return f"### {name}\n\n```text\n{formatter.getvalue().rstrip()}\n```\n"


def conflicts_page() -> str:
    """Make the conflict matrix from the data that commits are judged by."""
    lines = [
        "# Conflicts",
        "",
        "What happens to a commit when another one was first, by policy. *Apart*: both wrote in",
        "the same bucket, but different keys. *Same*: both wrote the same key, or it is not known.",
        "A [custom policy](../how-to/own-policy.md) decides when both commits wrote rows.",
        "",
        *(f"- **{verdict.value}**: {MEANING[verdict]}" for verdict in Verdict),
        "",
        "| kind | operations |",
        "|---|---|",
    ]
    for kind in Kind:
        names = [f"`{op.value}`" for op, each in KINDS.items() if each is kind]
        lines.append(f"| {kind.value} | {', '.join(names)} |")
    lines += [
        "",
        "A `transaction` has the kind `place` if one of its parts does. In a place that is",
    ]
    lines += [
        "replaced whole, the table or partitions, nothing is apart. Apart from the rows that an"
    ]
    lines += [
        "`overwrite(where=...)` replaces are other keys, for which its predicate does not hold.",
        "",
    ]
    for policy in POLICIES:
        lines += [f"## Policy `{policy}`", "", "| ours | theirs | they meet | apart | same |"]
        lines.append("|---|---|---|---|---|")
        for (ours, theirs), cells in MATRIX.items():
            cell = cells[policy]
            meets = WHERE[cell.meets]
            row = (ours.value, theirs.value, meets, cell.other_keys.value, cell.same_key.value)
            lines.append(f"| {' | '.join(row)} |")
        lines.append("")
    return NOTE + "\n".join(lines)


def column_changes_page() -> str:
    """Make the matrix of column changes and work in flight from the data that tests follow."""
    lines = [
        "# Changes of columns beside work in flight",
        "",
        "What becomes of work that began before the columns changed, with the Arrow engine. See",
        "[change columns](../how-to/change-columns.md) for Spark, and for what a change can be.",
        "",
        *(f"- **{outcome.value}**: {text}" for outcome, text in column_matrix.MEANING.items()),
        "",
    ]
    lines.append(f"| work | {' | '.join(change.value for change in column_matrix.ColumnChange)} |")
    lines.append("|---" * (len(column_matrix.ColumnChange) + 1) + "|")
    for work in column_matrix.WorkInFlight:
        cells = (column_matrix.BESIDE[change, work].value for change in column_matrix.ColumnChange)
        lines.append(f"| {work.value} | {' | '.join(cells)} |")
    lines += [
        "",
        "If another commit brings a column, its rows may also be in conflict with those of the",
        "work, as the [conflict matrix](conflicts.md) says. An upsert that brings a column itself",
        "ends with `RetryableConflictError` if a column of that name came with a type that does",
        "not hold its values.",
        "",
    ]
    return NOTE + "\n".join(lines)


MEANING = {
    Verdict.COMPATIBLE: "the commit continues.",
    Verdict.CARRY: "a service moved rows or took expired ones away: the commit hides its rows "
    "where they are now, and continues. If rows expired where a copy-on-write commit replaces "
    "files, these buckets are redone instead.",
    Verdict.REBASE: "the shared buckets are redone on the new version, automatically.",
    Verdict.RESTAGE: "another layout or other columns: the commit stages its rows again "
    "under the new one, automatically.",
    Verdict.RETRY: "`RetryableConflictError`, or redone with `on_conflict='retry'`.",
    Verdict.INCOMPATIBLE: "`IncompatibleConflictError`.",
}
WHERE = {
    Meets.NEVER: "never",
    Meets.SCOPES: "if their scopes overlap",
    Meets.ALWAYS: "always",
}


def kind_of(option: Option) -> str:
    """Return the kind of an option, or what it may be."""
    words = [f"`{word}`" for word in option.choices]
    return f"{', '.join(words[:-1])} or {words[-1]}" if words else option.kind


def options_page() -> str:
    """Make the table of options from the registry."""
    lines = [
        "# Options",
        "",
        "Set options with `Table.create(properties={...})`, `table.alter.set({...})` or",
        "`tablectl set`. They belong to the table, and every writer follows them. An unknown key",
        "is refused, and the error names the nearest valid key.",
        "",
        "| option | kind | default | at least | meaning |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| `{each.key}` | {kind_of(each)} | {each.default} | {each.minimum:g} | {each.doc} |"
        for each in OPTIONS.values()
    ]
    lines += [
        "",
        "A size is a number of bytes, or a number with `KiB`, `MiB` or `GiB` (or `k`, `m`, `g`). A",
        "time is a number of seconds, or a number with `ms`, `s`, `min`, `h` or `d`.",
    ]
    return NOTE + "\n".join(lines) + "\n"


def api_page() -> str:
    """Make the page of the public names."""
    parts = [
        "# Python API\n",
        "Import every name on this page from `plait`: `Table`, the types that its methods take and",
        "return, and the errors. Everything else may change without notice.\n",
    ]
    classes = {
        name: value
        for name in dict.fromkeys(("Table", *spaces(), *plait.__all__))
        if inspect.isclass(value := getattr(plait, name))
        and not issubclass(value, (Exception, plait.Retry))
    }
    parts += [class_section(name, value, spaces().get(name)) for name, value in classes.items()]
    parts.append("## Errors\n")
    parts.append("What each means, and what to do: [errors](errors.md).\n")
    parts.append(f"```text\n{error_tree()}\n```\n")
    return NOTE + "\n".join(parts)


def spaces() -> dict[str, str]:
    """Return the classes of the namespaces of a table, and what each is called there."""
    found = {key: value for key, value in vars(plait.Table).items() if isinstance(value, property)}
    kinds = {annotation_of(value): f"Table.{key}" for key, value in found.items()}
    return {kind: title for kind, title in kinds.items() if kind in plait.__all__}


def annotation_of(value: property) -> str:
    """Return what a property gives, as its source says it."""
    return "" if value.fget is None else str(inspect.signature(value.fget).return_annotation)


def class_section(name: str, kind: type, space: str | None = None) -> str:
    """Return a section for a class, with its public methods in the order of the source.

    A namespace shows its methods as a table has them.
    """
    parts = [f"## {name}\n", prose(kind)]
    if is_dataclass(kind):
        parts += [f"- `{each.name}`: {each.type}" for each in fields(kind)] + [""]
    elif issubclass(kind, tuple):
        names = {key: hint.__forward_arg__ for key, hint in kind.__annotations__.items()}
        parts += [f"- `{key}`: {value}" for key, value in names.items()] + [""]
    bases = [base for base in kind.__mro__ if base.__module__.startswith("plait.")]
    members: dict[str, object] = {}
    for key, member in [item for base in bases for item in vars(base).items()]:
        members.setdefault(key, member)  # what a class overrides is shown once
    for method_name, raw in members.items():
        if method_name.startswith("_") or f"{name}.{method_name}" in INTERNAL:
            continue
        title = f"{space or name}.{method_name}"
        value = raw.__func__ if isinstance(raw, classmethod) else raw
        if isinstance(value, property):
            parts.append(f"### `{title}`\n\n{prose(value)}")
            if (space_kind := annotation_of(value)) in spaces():
                parts.append(f"See [{space_kind}](#{space_kind.lower()}).\n")
        elif inspect.isfunction(value):
            parts.append(f"### `{title}`\n\n{signature(method_name, value)}")
            parts.append(prose(value))
    return "\n".join(parts)


WORDS = {name: kind for name, kind in vars(words).items() if get_origin(kind) is Literal}


def spelt_out(annotation: str) -> str:
    """Put the words in place of the name that the code has for them, and what rows may be.

    >>> spelt_out("OnConflict | None")
    "Literal['raise', 'retry'] | None"
    """
    annotation = re.sub(r"\bData\b", "ArrowData | SparkDataFrame", annotation)
    return re.sub(
        rf"\b({'|'.join(WORDS)})\b",
        lambda found: str(WORDS[found[0]]).removeprefix("typing."),
        annotation,
    )


def signature(name: str, function: Callable[..., object]) -> str:
    """Return the signature as code, one parameter a line."""
    found = inspect.signature(function)
    lines, keyword_only = [], False
    for each in found.parameters.values():
        if each.name in {"self", "cls"}:
            continue
        if each.kind is inspect.Parameter.KEYWORD_ONLY and not keyword_only:
            lines.append("    *,")
            keyword_only = True
        default = "" if each.default is inspect.Parameter.empty else f" = {each.default!r}"
        lines.append(f"    {each.name}: {spelt_out(str(each.annotation))}{default},")
    inside = "\n" + "\n".join(lines) + "\n" if lines else ""
    return f"```text\n{name}({inside}) -> {found.return_annotation}\n```\n"


def prose(value: object) -> str:
    """Return a docstring as Markdown: sections as lists, examples as code."""
    return "\n".join(markdown_lines(inspect.getdoc(value) or "")) + "\n"


def markdown_lines(doc: str) -> Iterator[str]:
    """Turn the lines of a docstring into Markdown."""
    code = False
    for line in doc.splitlines():
        if line.startswith(">>>") and not code:
            yield "```python"
            code = True
        elif code and not line.strip():
            yield "```"
            code = False
        yield line if code else markdown_line(line.replace("``", "`"))
    if code:
        yield "```"


def markdown_line(line: str) -> str:
    """Turn a line of prose: the head of a section, an item of one, or text."""
    if re.fullmatch(r"(Args|Returns|Raises|Yields):", line):
        return f"**{line[:-1]}**\n"
    item = re.fullmatch(r"    (\w+): (.*)", line)
    return f"- `{item[1]}`: {item[2]}" if item else line.strip()


def error_tree() -> str:
    """Return the drawing in the docstring of ``plait.errors``."""
    doc = inspect.getdoc(plait.errors) or ""
    return "\n".join(line[4:] for line in doc.splitlines() if line.startswith("    "))


if __name__ == "__main__":
    sys.exit(main())
