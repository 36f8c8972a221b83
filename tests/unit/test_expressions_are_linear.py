"""Regular expressions take a time that grows with the text alone, whoever wrote the text."""

from __future__ import annotations

import ast
import importlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import plait

ROOT = Path(plait.__file__).parent
LENGTH, PATIENCE_S = 30_000, 0.3
"""What is quadratic takes seconds for such a text; what is linear, a millisecond."""
FIRST = 10_000
"""A shorter text is tried before: the longer one would hang where the time grows faster."""
UNITS = (
    "a", "0", "9.", " ", "\n", "-", "_", ".", ",", ":", "/", "@", "?a", "&",
    "=", "%", "'", "''", '"', "`", "``", "\\", "\\\\", "(", ")", "()", "[", "{", "}", "$", "+", "*",
    "://", "a:", "a=", "?a=", "a,", "a(", "(a", "a b", "a:b@", "0123456789abcdef", "é", "\u2028",
    "e+1", "a-", "aA0_", "--", "/*", "extra", "key=", "x'",
)  # fmt: skip
ELSEWHERE = {
    ("stream/message_schema.py", "compile"): "patterns of the published schema, no stranger's",
    ("timeline/paths.py", "fullmatch"): "an expression of this module with a bound on its length",
    ("spark/transfer.py", "search"): "a literal of this process, and one class after it",
}
"""Expressions that are made when they are used."""
Run = Callable[[re.Pattern[str], str], object]
RUNS: dict[str, Run] = {
    "match": lambda pattern, text: pattern.match(text),
    "fullmatch": lambda pattern, text: pattern.fullmatch(text),
    "search": lambda pattern, text: pattern.search(text),
    "sub": lambda pattern, text: pattern.sub("", text),
    "split": lambda pattern, text: pattern.split(text),
    "findall": lambda pattern, text: pattern.findall(text),
    "finditer": lambda pattern, text: list(pattern.finditer(text)),
}


def calls(tree: ast.Module) -> Iterator[tuple[str, str, ast.Call]]:
    """Return calls of a method of a name: the name, the method, the call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            at = node.func.value
            if isinstance(at, ast.Name):
                yield at.id, node.func.attr, node


def patterns_in(value: object) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from patterns_in(each)
    elif isinstance(value, dict):
        yield from patterns_in(list(value.values()))


def found() -> dict[str, tuple[re.Pattern[str], set[str]]]:
    """Return every expression of the source, and how it is used."""
    everything: dict[str, tuple[re.Pattern[str], set[str]]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "import re\n" not in text:
            continue
        place, tree = path.relative_to(ROOT).as_posix(), ast.parse(text)
        used: dict[str, set[str]] = {}
        for name, method, call in calls(tree):
            used.setdefault(name, set()).add(method)
            literal = call.args[0] if name == "re" and call.args else None
            if method in RUNS and isinstance(literal, ast.Constant):
                everything[f"{place}: {literal.value}"] = (re.compile(literal.value), {method})
            elif name == "re" and method in RUNS:
                assert (place, method) in ELSEWHERE, f"{place}: name this expression in the module"
        dotted = ".".join(("plait", *Path(place).with_suffix("").parts))
        module = importlib.import_module(dotted.removesuffix(".__init__"))
        for name, value in vars(module).items():
            ways = used.get(name, set()) & set(RUNS) or {"match", "fullmatch"}
            for number, pattern in enumerate(patterns_in(value)):
                everything[f"{place}: {name}.{number}"] = (pattern, ways)
    return everything


def took_s(run: Run, pattern: re.Pattern[str], text: str | bytes) -> float:
    began = time.process_time()
    run(pattern, text)  # type: ignore[arg-type]  # bytes for an expression of bytes
    return time.process_time() - began


def slow_each_time(run: Run, pattern: re.Pattern[str], text: str | bytes, bound_s: float) -> float:
    """Return the seconds of the last of three runs that took longer than a bound; else 0."""
    spent = 0.0
    for _ in range(3):
        spent = took_s(run, pattern, text)
        if spent <= bound_s:
            return 0.0
    return spent


@pytest.mark.slow
def test_no_expression_takes_more_than_a_linear_time() -> None:
    """Each on 30,000 characters of each unit, alone and before what does not fit."""
    slow, tried = [], 0
    for name, (pattern, ways) in found().items():
        for way in sorted(ways):
            for unit in UNITS:
                for length in (FIRST, LENGTH):
                    text = unit * (length // len(unit)) + "\x01"
                    told = text.encode() if isinstance(pattern.pattern, bytes) else text
                    bound_s, tried = PATIENCE_S * length / LENGTH, tried + 1
                    # A collection of garbage may come in between, but not each time.
                    if spent := slow_each_time(RUNS[way], pattern, told, bound_s):
                        slow.append(f"{name}.{way} on {unit!r}: {spent:.2f} s for {length}")
                        break
    assert slow == []
    assert tried > 5_000
