"""Functions and classes stay small, files hold one concept; each exception has its reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.architecture import exceptions

ROOT = Path(__file__).resolve().parents[2]
FILE_LINES, TEST_FILE_LINES, CONFTEST_LINES = 800, 800, 150
"""Beyond this many lines a file needs a reason. No cap to squeeze under: one concept, whole."""
ROOM_FILES = 30
FUNCTION_LINES, FUNCTION_LINES_NEVER = 50, 70
PARAMETERS, POSITIONAL, NESTING, METHODS, FACADE_METHODS = 6, 4, 3, 15, 30
BLOCKS = (ast.For, ast.AsyncFor, ast.While, ast.If, ast.Try, ast.Match)


@dataclass
class Measures:
    """What was measured, by place."""

    functions: dict[str, int] = field(default_factory=dict)
    parameters: dict[str, int] = field(default_factory=dict)
    nesting: dict[str, int] = field(default_factory=dict)
    methods: dict[str, int] = field(default_factory=dict)


def sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def place_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def depth_of(node: ast.AST, *, inside: int = 0) -> int:
    """Count the deepest nesting of branches and loops; ``elif`` is no deeper than its ``if``."""
    deepest = inside
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST):
                continue
            elif_branch = name == "orelse" and isinstance(node, ast.If) and len(node.orelse) == 1
            deeper = isinstance(child, BLOCKS) and not (elif_branch and isinstance(child, ast.If))
            deepest = max(deepest, depth_of(child, inside=inside + deeper))
    return deepest


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines below the docstring: a good explanation makes no function long."""
    first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
    return (node.end_lineno or 0) - first.lineno + 1


def measure() -> Measures:
    found = Measures()

    def visit(node: ast.AST, place: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                name = f"{place}{child.name}"
                given = [*child.args.posonlyargs, *child.args.args, *child.args.kwonlyargs]
                own = [each for each in given if each.arg not in {"self", "cls"}]
                found.functions[name] = body_lines(child)
                found.parameters[name] = len(own)
                found.nesting[name] = max(
                    (depth_of(each, inside=isinstance(each, BLOCKS)) for each in child.body),
                    default=0,
                )
                visit(child, f"{name}.")
            elif isinstance(child, ast.ClassDef):
                name = f"{place}{child.name}"
                public = {
                    each.name  # once, however many overloads it has
                    for each in child.body
                    if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))
                    and not each.name.startswith("_")
                }
                found.methods[name] = len(public)
                visit(child, f"{name}.")
            else:
                visit(child, place)

    for path in sources("src"):
        visit(ast.parse(path.read_text(encoding="utf-8")), f"{place_of(path)}:")
    return found


@pytest.fixture(scope="module")
def measures() -> Measures:
    return measure()


def check(found: dict[str, int], limit: int, excused: dict[str, str]) -> None:
    over = {place: count for place, count in found.items() if count > limit}
    new = {place: count for place, count in over.items() if place not in excused}
    assert not new, f"over {limit}: {new}"
    needless = sorted(set(excused) - set(over))
    assert not needless, f"no longer over {limit}, take them off the list: {needless}"
    assert all(excused.values()), "an exception needs its reason"


def test_large_source_files_have_a_reason() -> None:
    found = {place_of(path): lines_of(path) for path in sources("src")}
    check(found, FILE_LINES, exceptions.LONG_FILES)


def test_large_test_files_have_a_reason() -> None:
    found = {place_of(path): lines_of(path) for path in sources("tests", "scripts", "benchmarks")}
    check(found, TEST_FILE_LINES, exceptions.LONG_TESTS)
    conftests = {place: count for place, count in found.items() if place.endswith("conftest.py")}
    check(conftests, CONFTEST_LINES, {})


def test_functions_stay_short(measures: Measures) -> None:
    check(measures.functions, FUNCTION_LINES, exceptions.LONG_FUNCTIONS)
    check(measures.functions, FUNCTION_LINES_NEVER, {})


def test_functions_take_few_parameters(measures: Measures) -> None:
    check(measures.parameters, PARAMETERS, exceptions.MANY_PARAMETERS)


def test_blocks_are_not_nested_deeply(measures: Measures) -> None:
    check(measures.nesting, NESTING, exceptions.NESTED)


def test_classes_have_few_public_methods(measures: Measures) -> None:
    check(measures.methods, METHODS, exceptions.MANY_METHODS)
    check(measures.methods, FACADE_METHODS, {})


def test_no_room_holds_more_files_than_one_can_look_through() -> None:
    rooms: dict[str, int] = {}
    for path in sources("src/plait"):
        rooms[place_of(path.parent)] = rooms.get(place_of(path.parent), 0) + 1
    assert {room: count for room, count in rooms.items() if count > ROOM_FILES} == {}
