"""Mutants of a source file: each is the file with one small fault put in.

A fault changes what the code does, so nothing is changed in docstrings, annotations, texts, and
what is only said: arguments of errors, log lines.
"""

from __future__ import annotations

import ast
import random  # noqa: TID251 - a choice that a seed repeats
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,  # codespell:ignore
    ast.NotIn: ast.In,  # codespell:ignore
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_SIZE = 16
"""A greater number is a size or a time, which one more does not change."""
_SHOWN = 70
_SAID = ("log", "_log", "logger", "warnings")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: the text from ``start`` to ``stop`` of a file becomes another."""

    path: str
    line: int
    function: str
    """Where it is; empty for the body of the module or of a class."""
    kind: str
    before: str
    after: str
    start: int
    stop: int
    statement: range
    """The lines of the statement that it is in; of an `if`, `for` or `with` its head alone."""
    number: int = 1
    """The same text may stand in a function more than once."""

    @property
    def name(self) -> str:
        """Identify it as long as nobody changes the code around it."""
        number = f" (number {self.number})" if self.number > 1 else ""
        function = self.function or "<module>"
        return f"{self.path}:{function}: {shown(self.before)} -> {self.after}{number}"

    def applied(self, source: str) -> str:
        """Return the source with the fault."""
        body = source.encode()
        if body[self.start : self.stop].decode() != self.before:
            message = f"{self.path} has changed since its mutants were made"
            raise ValueError(message)
        return (body[: self.start] + self.after.encode() + body[self.stop :]).decode()


def shown(text: str) -> str:
    """Return code in one short line."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 3]}..."


def every_mutant(paths: dict[str, Path]) -> dict[str, list[Mutant]]:
    """Return all mutants of each file."""
    return {name: list(mutants_of(name, path.read_text("utf-8"))) for name, path in paths.items()}


def sample(every: dict[str, list[Mutant]], count: int, seed: int) -> list[Mutant]:
    """Choose about so many mutants, from each file by its share, and one at least.

    Each file draws for itself: a change of one leaves the choice in the others as it was.
    """
    total = sum(map(len, every.values()))
    chosen = []
    for name, mutants in sorted(every.items()):
        share = min(len(mutants), max(1, round(count * len(mutants) / total)))
        # A seeded choice for a test, and none for a secret.
        drawn = random.Random(f"{seed}:{name}").sample(mutants, share)  # noqa: S311
        chosen += sorted(drawn, key=lambda mutant: mutant.start)
    return chosen


def mutants_of(name: str, source: str) -> Iterator[Mutant]:
    """Yield every mutant of a file."""
    seen = Counter[str]()
    for mutant in _Walk(name, source).mutants():
        seen[mutant.name] += 1
        yield replace(mutant, number=seen[mutant.name])


class _Walk:
    """One pass over a tree."""

    def __init__(self, name: str, source: str) -> None:
        self._name, self._body = name, source.encode()
        lines = self._body.splitlines(keepends=True)
        self._starts = [0]
        for line in lines:
            self._starts.append(self._starts[-1] + len(line))
        self._tree = ast.parse(source)

    def mutants(self) -> Iterator[Mutant]:
        for node, function, statement in _walk(self._tree, "", None):
            for kind, target, new in _faults(node):
                start = self._starts[target.lineno - 1] + target.col_offset
                end_line, end = target.end_lineno or 1, target.end_col_offset or 0
                stop = self._starts[end_line - 1] + end
                before = self._body[start:stop].decode()
                if new != before:
                    line = target.lineno
                    # A statement that is left out is its own, an expression stands in one.
                    outer = None if isinstance(target, ast.stmt) else statement
                    lines = _head(outer or target)
                    yield Mutant(self._name, line, function, kind, before, new, start, stop, lines)


def _head(within: ast.expr | ast.stmt) -> range:
    """Return the lines of a statement, without those of its body."""
    last = within.end_lineno or within.lineno
    body = getattr(within, "body", None)
    if isinstance(body, list):
        last = max(within.lineno, body[0].lineno - 1)
    return range(within.lineno, last + 1)


def _walk(
    node: ast.AST, function: str, statement: ast.stmt | None
) -> Iterator[tuple[ast.AST, str, ast.stmt | None]]:
    """Yield what may carry a fault, the function and the statement that it is in."""
    typed = ("annotation", "returns", "decorator_list")
    fields = [value for field, value in ast.iter_fields(node) if field not in typed]
    nested = [value if isinstance(value, list) else [value] for value in fields]
    for child in [each for values in nested for each in values]:
        if not isinstance(child, ast.AST) or _is_said(child):
            continue
        name = function
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            if getattr(child, "name", "") in ("__repr__", "__str__"):
                continue
            name = f"{function}.{child.name}".lstrip(".")
        within = child if isinstance(child, ast.stmt) else statement
        yield child, name, within
        yield from _walk(child, name, within)


def _is_said(node: ast.AST) -> bool:
    """Tell whether it only says something: imports, annotations, errors' texts, log lines."""
    if isinstance(node, ast.Import | ast.ImportFrom | ast.arg | ast.JoinedStr):
        return True
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return True
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("message", "hint"):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        return called.split(".")[0] in _SAID or called.rpartition(".")[2].endswith("Error")
    return False


def _faults(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Yield the faults of one node: what kind, what is replaced, and by what."""
    if isinstance(node, ast.expr):
        yield from _of_expression(node)
    elif isinstance(node, ast.Return):
        if node.value is not None and ast.unparse(node.value) != "None":
            yield "return", node.value, "None"
    elif isinstance(node, ast.If | ast.While):
        yield "negation", node.test, _negated(node.test)
    elif isinstance(node, ast.Raise):
        yield "no raise", node, "pass"
    elif isinstance(node, ast.ExceptHandler):
        first = node.body[0]
        if not isinstance(first, ast.Pass | ast.Continue) and not _is_logged(first):
            yield "swallowed", first, "pass"
    elif isinstance(node, ast.Continue | ast.Break):
        yield "no jump", node, "pass"
    elif isinstance(node, ast.AugAssign) or _is_stored(node):
        yield "no statement", node, "pass"  # type: ignore[misc]  # a statement by the line above
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and not _is_logged(node):
        yield "no call", node, "pass"


def _is_logged(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and _is_said(node.value)


def _is_stored(node: ast.AST) -> bool:
    """Tell whether it assigns to an attribute or an item: a local name would only be missing."""
    return isinstance(node, ast.Assign) and all(
        isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets
    )


def _of_expression(node: ast.expr) -> Iterator[tuple[str, ast.expr, str]]:
    if isinstance(node, ast.Compare):
        for at, operator in enumerate(node.ops):
            new = [*node.ops]
            new[at] = _COMPARE[type(operator)]()
            changed = ast.Compare(node.left, new, node.comparators)
            yield "comparison", node, f"({ast.unparse(changed)})"
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "boolean", node, f"({ast.unparse(ast.BoolOp(other, node.values))})"
    elif isinstance(node, ast.IfExp):
        changed_test = ast.UnaryOp(ast.Not(), node.test)
        yield "negation", node, f"({ast.unparse(ast.IfExp(changed_test, node.body, node.orelse))})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "negation", node, f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC and not _is_typing(node):
        other_sum = ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)
        yield "arithmetic", node, f"({ast.unparse(other_sum)})"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "constant", node, repr(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        if node.value > _SIZE:
            return
        yield "constant", node, repr(node.value + 1)


def _is_typing(node: ast.BinOp) -> bool:
    """Tell whether it is a union of types or of texts, where the other operator is no fault."""
    text = ast.unparse(node)
    return " | " in text and any(word in text for word in ("None", "str", "int", "bytes"))


def _negated(test: ast.expr) -> str:
    return f"(not ({ast.unparse(test)}))"
