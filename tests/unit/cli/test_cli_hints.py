"""What an error advises on the command line can be typed there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import plait
from plait import Catalog, Table
from plait.cli.hints import COMMANDS, in_commands
from plait.cli.main import ROOT

SOURCES = Path(plait.__file__).parent
PYTHON_ALONE = {"Table.alter.columns": "the command alter takes SQL"}


def _hints() -> set[str]:
    """Return the texts of the hints in the library; of those made of parts, the parts."""
    found = set()
    for path in SOURCES.rglob("*.py"):
        if path.is_relative_to(SOURCES / "cli") or path.is_relative_to(SOURCES / "spark"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            given = isinstance(node, ast.keyword) and node.arg == "hint"
            named = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "hint"
            if given or named:
                inside = (each for each in ast.walk(node) if isinstance(each, ast.Constant))
                found |= {each.value for each in inside if isinstance(each.value, str)}
    return found


def test_no_hint_on_the_command_line_names_a_call_that_a_command_does() -> None:
    hints = _hints()
    assert len(hints) > 300
    told = [in_commands(hint) for hint in hints]
    left = {hint: re.findall(r"(?<![.\w])(?:Table|Catalog)\.[a-z_.]+", hint) for hint in told}
    assert {call for calls in left.values() for call in calls} <= set(PYTHON_ALONE)
    for hint in told:
        assert not re.search(r"\b(if_not_exists|dry_run|record_key)=", hint), hint


@pytest.mark.parametrize("call", COMMANDS)
def test_what_a_hint_names_exists_in_python_and_on_the_command_line(call: str, uri: str) -> None:
    """Some hints named methods that had other names by then."""
    said = f"see {call}()"
    assert any(re.search(rf"{re.escape(call)}\b", hint) for hint in _hints())
    root, *names = call.replace("(uri)", "").split(".")
    found: object = Catalog if root == "Catalog" else Table.create(uri, "id int", record_key="id")
    for name in names:
        found = getattr(found, name)
    assert callable(found)
    command, *arguments = COMMANDS[call].removeprefix("tablectl ").split()
    options = {name for each in ROOT.get_command(None, command).params for name in each.opts}  # type: ignore[union-attr, arg-type]  # fails the test
    assert {each for each in arguments if each.startswith("--")} <= options
    assert in_commands(said) == f"see `{COMMANDS[call]}`"


def test_the_hints_of_a_catalog_are_commands(tablectl, tmp_path):
    lake = tmp_path / "lake"
    assert "make one with `tablectl namespace URI NAME`" in tablectl("list", lake).err
    assert tablectl("namespace", lake, "a").code == 0
    assert "pass --if-not-exists" in tablectl("namespace", lake, "a").err
    assert tablectl("namespace", lake, "a", "--if-not-exists").code == 0
    missing = tablectl("create", lake, "--name", "b.t", "--schema", "id int")
    assert "create it with `tablectl namespace URI NAME`" in missing.err
    assert "`tablectl list URI --dropped`" in tablectl("undrop", lake, "a.t").err
    bad = tablectl("create", lake, "--schema", "id int", "--property", "x")
    assert "--property takes key=value" in bad.err


def test_a_catalog_and_a_table_are_never_in_one_place(tablectl, tmp_path):
    lake, table = tmp_path / "lake", tmp_path / "t"
    assert tablectl("namespace", lake, "a").code == 0
    assert tablectl("create", table, "--schema", "id int").code == 0
    for more in ([], ["--if-not-exists"]):
        ran = tablectl("create", lake, "--schema", "id int", *more)
        assert ran.code == 2
        assert "is a catalog" in ran.err
        assert "--name NAMESPACE.TABLE" in ran.err
    assert "is a table" in tablectl("namespace", table, "a").err
    assert not (lake / ".meta").exists()
    assert not (table / ".catalog").exists()
