"""The pages that the site takes from the code have every name, command, error and property."""

from __future__ import annotations

import html
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

import plait
from plait import errors
from plait.cli.command import Command
from plait.cli.commands.explain import load_explanations
from plait.cli.exits import MEANING
from plait.cli.main import ENTRIES, ROOT
from plait.definition.policy import POLICIES, Verdict
from plait.model import words
from plait.model.contract import OPTIONS
from plait.model.instant import Operation
from scripts.column_matrix import ColumnChange, Upshot, WorkInFlight
from scripts.reference import INTERNAL

PROJECT = Path(__file__).resolve().parents[2]
Reader: TypeAlias = Callable[[str], str]


@pytest.mark.slow
def test_the_site_has_all_that_the_code_has(tmp_path: Path) -> None:
    """In one test, as the site is built once: strictly, so that every link leads somewhere."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)]
    subprocess.run(command, cwd=PROJECT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True)

    def source(name: str) -> str:
        return (tmp_path / "reference" / name / "index.html").read_text(encoding="utf-8")

    def text(name: str) -> str:
        return html.unescape(re.sub(r"<[^>]+>", "", source(name)))

    assert lacking(source("api"), (f'id="{each}"' for each in public_names())) == []
    assert lacking(text("api"), examples()) == []
    assert not re.search(rf"[:|(] ?({'|'.join(word_types())})\b(?! \w)", text("api")), (
        "not spelt out"
    )
    assert 'missing_columns: Literal["raise", "keep"] = "raise",' in text("api")
    assert lacking(text("cli"), usages()) == []
    assert lacking(source("errors"), (f'id="{code}"' for code in load_explanations())) == []
    assert lacking(text("options"), (f"\n{o.key}\n" for o in OPTIONS.values())) == []
    words_of_conflicts = (*Verdict, *POLICIES, *(each.value for each in Operation))
    assert lacking(text("conflicts"), words_of_conflicts) == []
    assert lacking(text("column-changes"), (*ColumnChange, *WorkInFlight, *Upshot)) == []
    assert not [page for page in PAGES if "`make docs` writes" in text(page)]


PAGES = sorted(page.stem for page in (PROJECT / "docs/reference").glob("*.md"))


def lacking(page: str, wanted: Iterator[str] | tuple[str, ...]) -> list[str]:
    found = list(wanted)
    assert found
    return [each for each in found if each not in page]


def public_names() -> Iterator[str]:
    """Yield the public names, and the methods, properties, fields and facts of each class."""
    for name in plait.__all__:
        yield f"plait.{name}"
        kind = getattr(plait, name)
        if not inspect.isclass(kind):
            continue
        own = vars(kind).get("__annotations__", {}) if issubclass(kind, errors.TableError) else ()
        members = {
            *own,
            *(each.name for each in (fields(kind) if is_dataclass(kind) else ())),
            *(key for key, value in inspect.getmembers(kind) if is_ours(kind, value)),
        }
        for member in members:
            if not member.startswith("_") and f"{name}.{member}" not in INTERNAL:
                yield f"plait.{name}.{member}"


def is_ours(kind: type, member: object) -> bool:
    """Return whether it is a method or property of Plait; errors show theirs with their base."""
    made = member.fget if isinstance(member, property) else member
    made = getattr(made, "__func__", made)
    if not (inspect.isfunction(made) and made.__module__.startswith("plait.")):
        return False
    return not issubclass(kind, Exception) or made.__name__ in vars(kind)


def examples() -> Iterator[str]:
    """Yield the first line of the examples of each public class and of its methods."""
    for name in plait.__all__:
        kind = getattr(plait, name)
        members = vars(kind).items() if inspect.isclass(kind) else ()
        shown = (
            value for key, value in members if is_ours(kind, value) and not key.startswith("_")
        )
        for each in (kind, *shown):
            found = re.search(r"^\s*(>>> .+)$", getattr(each, "__doc__", None) or "", re.MULTILINE)
            if found:
                yield found[1]


def usages() -> Iterator[str]:
    """Yield the head of each command, both of its examples, and the exit codes."""
    context = Command("tablectl").context_class(ROOT, info_name="tablectl")
    for name in ENTRIES:
        command = ROOT.get_command(context, name)
        assert isinstance(command, Command)
        assert len(command.examples) >= 2
        yield f"Usage: tablectl {name} "
        yield from (f"  tablectl {line}\n" for line in command.examples)
    yield from (f"{int(code)}\n{meaning.replace('`', '')}" for code, meaning in MEANING.items())


def word_types() -> list[str]:
    names = [name for name, kind in vars(words).items() if getattr(kind, "__args__", None)]
    return [*names, "Data"]
