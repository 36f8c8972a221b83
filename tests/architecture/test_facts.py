"""The facts of errors are typed attributes of their classes."""

from __future__ import annotations

import ast
import inspect
import pickle  # noqa: TID251 - errors cross processes
from collections.abc import Iterator
from pathlib import Path

import pytest

from plait import CommitRetriesExhaustedError, OptionError, TableError, errors

SRC = Path(__file__).resolve().parents[2] / "src" / "plait"
KINDS = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, TableError)
}
OWN = {"message", "hint", "facts", "args", "code", "retry"}


def declared(kind: type) -> dict[str, object]:
    """Return the facts of a class and of its bases, with their defaults."""
    bases = [base for base in kind.__mro__ if base.__module__ == errors.__name__]
    names = [name for base in bases for name in vars(base).get("__annotations__", {})]
    return {name: getattr(kind, name) for name in names if name not in OWN}


def raised() -> Iterator[tuple[str, str, str]]:
    """Yield each fact that the code gives an error: the place, the class and its name."""
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                for keyword in node.keywords if node.func.id in KINDS else ():
                    if keyword.arg not in (None, "hint"):
                        place = f"{path.relative_to(SRC)}:{node.lineno}"
                        yield place, node.func.id, str(keyword.arg)


def test_every_fact_that_is_given_is_declared() -> None:
    unknown = [each for each in raised() if each[2] not in declared(KINDS[each[1]])]
    assert not unknown


def test_a_fact_that_is_not_given_is_empty_or_none() -> None:
    for kind in KINDS.values():
        error = kind("it happened")
        assert not [name for name, default in declared(kind).items() if getattr(error, name)]
        assert not OWN & set(declared(kind))


def test_facts_are_attributes_after_pickling_too() -> None:
    cause = OptionError("unknown", key="buckts", value=3, nearest=["buckets"])
    error = CommitRetriesExhaustedError("too often", attempts=7, elapsed_ms=90)
    for each in (cause, pickle.loads(pickle.dumps(cause))):
        assert (each.key, each.value, each.nearest) == ("buckts", 3, ["buckets"])
        assert each.facts == {"key": "buckts", "value": 3, "nearest": ["buckets"]}
    assert (error.attempts, error.elapsed_ms, error.conflict) == (7, 90, None)


def test_what_is_no_fact_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        OptionError("unknown", key="x").kye  # noqa: B018 - looked up for its error
