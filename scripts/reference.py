"""Write what the pages of docs/reference take from the code, each time that the site is built.

``mkdocs.yml`` names this file as a hook of mkdocs, and as an extension of griffe, which reads the
source for mkdocstrings. A line of a page such as "> `make docs` writes options here, from
`src/plait/model/contract.py`." becomes what ``options`` returns. On a code forge it tells the
reader where to look.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_origin

import click
import griffe

import plait
from plait import errors
from plait.cli.commands.explain import load_page
from plait.cli.exits import MEANING as EXIT_MEANING
from plait.cli.exits import exit_for
from plait.cli.main import ENTRIES, ROOT
from plait.definition.policy import POLICIES
from plait.model import words
from plait.model.contract import OPTIONS
from plait.txn.matrix import KINDS, MATRIX, Kind, Meets

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.column_matrix import BESIDE, MEANING, ColumnChange, WorkInFlight

LINE = re.compile(r"^> `make docs` writes (\w+) here, from `([^`]+)`\.$", re.MULTILINE)
_OF_ENGINES = {
    "ChangeScan": ("divided", "keep", "store", "where", "window"),
    "Finding": ("cut",),
    "Participant": ("spec",),
    "Pinned": ("store",),
    "Replication": ("require", "require_removals", "staging"),
    "Scan": ("by_file", "keep", "plan", "read_predicate", "require_unlimited", "snapshot", "store"),
    "ScanSplit": ("keep",),
    "Stream": ("writer_of",),
}
INTERNAL = frozenset(f"{kind}.{each}" for kind, found in _OF_ENGINES.items() for each in found)
"""Members without an underscore that only Plait's own engines use; not public interface."""


def on_page_markdown(markdown: str, **_: object) -> str:
    """Put the parts of a page in the place of the lines that name them; mkdocs calls this."""
    return LINE.sub(lambda line: PARTS[line[1]](), markdown)


def table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = (titles, ("---",) * len(titles), *rows)
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def code(*found: str) -> list[str]:
    """Return each text as code."""
    return [f"`{each}`" for each in found]


def options() -> str:
    """Return the table of the properties of a table."""
    rows = (
        (*code(o.key), " or ".join(code(*o.choices)) or o.kind, o.default, f"{o.minimum:g}", o.doc)
        for o in OPTIONS.values()
    )
    return table(("option", "kind", "default", "at least", "meaning"), rows)


def exit_codes() -> str:
    """Return the table of exit codes with the errors that end in each."""
    kinds = list(error_classes(errors.TableError))
    rows = (
        (int(exit_), meaning, ", ".join(code(*(k.code for k in kinds if exit_for(k) == exit_))))
        for exit_, meaning in EXIT_MEANING.items()
    )
    return table(("code", "meaning", "errors"), rows)


def error_classes(root: type[errors.TableError]) -> Iterator[type[errors.TableError]]:
    """Yield the classes of errors below one, each before its own."""
    for kind in root.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield kind
            yield from error_classes(kind)


def commands() -> str:
    """Return a section for each command, with its help as the program prints it."""
    parent, parts = click.Context(ROOT, info_name="tablectl", **ROOT.context_settings), []
    for name in ENTRIES:
        formatter = click.HelpFormatter(width=100)
        if command := ROOT.get_command(parent, name):
            command.format_help(click.Context(command, info_name=name, parent=parent), formatter)
        parts.append(f"### {name}\n\n```text\n{formatter.getvalue().rstrip()}\n```\n")
    return "\n".join(parts)


def kinds() -> str:
    """Return the table of the kinds of operations in the conflict matrix."""
    of = {kind: [op.value for op, each in KINDS.items() if each is kind] for kind in Kind}
    return table(("kind", "operations"), ((kind, ", ".join(code(*of[kind]))) for kind in of))


def conflicts() -> str:
    """Return the conflict matrix, by which commits are judged, policy by policy."""
    meet = {Meets.SCOPES: "if their scopes overlap"}
    parts = []
    for policy in POLICIES:
        cells = {pair: cells[policy] for pair, cells in MATRIX.items()}
        rows = (
            (*pair, meet.get(cell.meets, cell.meets), cell.other_keys, cell.same_key)
            for pair, cell in cells.items()
        )
        matrix = table(("ours", "theirs", "they meet", "apart", "same"), rows)
        parts.append(f"## Policy `{policy}`\n\n{matrix}\n")
    return "\n".join(parts)


def column_changes() -> str:
    """Return the matrix of column changes and work in flight, which tests follow, too."""
    rows = ((work, *(BESIDE[change, work] for change in ColumnChange)) for work in WorkInFlight)
    meanings = (f"- **{each}**: {text}" for each, text in MEANING.items())
    return "\n".join((*meanings, "", table(("work", *ColumnChange), rows)))


def error_codes() -> str:
    """Return the sections that ``tablectl explain`` prints; the title is the page's own."""
    return load_page().partition("\n")[2]


def api() -> str:
    """Return what mkdocstrings turns into the classes and functions, the table first."""
    properties = {key: v.fget for key, v in vars(plait.Table).items() if isinstance(v, property)}
    called = {
        str(inspect.signature(v).return_annotation): key for key, v in properties.items() if v
    }
    spaces = {name: f"Table.{key}" for name, key in called.items() if name in plait.__all__}
    names = dict.fromkeys(("Table", *spaces, *plait.__all__))
    failures = {each.__name__ for each in failure_classes()}
    return "\n".join(shown(each, spaces.get(each, each)) for each in names if each not in failures)


def api_errors() -> str:
    """Return the drawing of the errors, and their classes; the facts of a base stand there."""
    drawn = re.findall(r"^    (.*)", inspect.getdoc(errors) or "", re.MULTILINE)
    classes = (shown(kind.__name__, kind.__name__, alone=True) for kind in failure_classes())
    return "\n".join(["```text", *drawn, "```", "", *classes])


def failure_classes() -> tuple[type, ...]:
    """Return the classes that stand in the section of errors."""
    tree = error_classes(errors.TableError)
    return (errors.TableError, *tree, errors.InvariantError, errors.Retry)


def shown(name: str, called: str, *, alone: bool = False) -> str:
    """Return what mkdocstrings is told of a public name, whose methods are shown as ``called.x``.

    After its own members it has those of its bases, unless it stands alone.
    """
    kind = getattr(plait, name)
    bases = inspect.getmro(kind) if inspect.isclass(kind) and not alone else (kind,)
    members = dict.fromkeys(
        key
        for base in bases
        if base.__module__.startswith("plait.")
        for key in (*vars(base).get("__annotations__", ()), *vars(base))
        if not key.startswith("_") and f"{name}.{key}" not in INTERNAL
    )
    told: dict[str, object] = {"members": list(members), "extra": {"called": called}}
    told |= {"inherited_members": not alone, "show_bases": alone, "heading_level": 2 + alone}
    return f"::: plait.{name}\n    options: {json.dumps(told)}\n"


_PARTS = (api, api_errors, column_changes, commands, conflicts, error_codes, exit_codes)
PARTS: Mapping[str, Callable[[], str]] = {f.__name__: f for f in (*_PARTS, kinds, options)}
WORDS = {name: str(kind) for name, kind in vars(words).items() if get_origin(kind) is Literal}
WORDS |= {"Data": "ArrowData | SparkDataFrame"}


class Readable(griffe.Extension):
    """Shows docstrings and signatures to somebody who does not know the source."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Put examples into blocks of code, and spell out the words that an argument takes."""
        if obj.docstring:
            text = obj.docstring.value
            obj.docstring.value = re.sub(r"(?m)^>>> .*(?:\n.+)*", "```python\n\\g<0>\n```", text)
        for each in obj.parameters if isinstance(obj, griffe.Function) else [obj]:
            if obj.parent and isinstance(each, (griffe.Attribute, griffe.Parameter)):
                each.annotation = spelt_out(each.annotation, obj.parent)


def spelt_out(
    annotation: str | griffe.Expr | None, parent: griffe.Module | griffe.Class
) -> str | griffe.Expr | None:
    """Put the words in the place of the name that the code has for them, and what rows may be."""
    text = re.sub(rf"\b({'|'.join(WORDS)})\b", lambda name: WORDS[name[0]], str(annotation))
    if text == str(annotation):
        return annotation
    expression = ast.parse(text.replace("typing.", ""), mode="eval").body
    return griffe.get_annotation(expression, parent=parent)
