"""Every type that a public method takes or returns can be imported from ``plait``."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args

import plait
from plait import Table
from scripts.reference import INTERNAL

ROOT = Path(__file__).resolve().parents[2]


def test_every_type_that_a_public_method_names_is_exported() -> None:
    reached = reachable(Table)
    missing = {
        f"{each.__module__}.{each.__name__} ({by})"
        for each, by in reached.items()
        if each.__name__ not in plait.__all__
    }
    assert not missing, f"export from plait, or name the member in INTERNAL: {sorted(missing)}"
    assert {"Scan", "ChangeScan", "Writer", "Stream", "CleanReport", "Audit"} <= {
        each.__name__ for each in reached
    }


def test_internal_members_exist() -> None:
    """An entry that stays behind after a rename would hide nothing."""
    for entry in INTERNAL:
        kind, member = entry.split(".")
        assert hasattr(getattr(plait, kind), member), entry


def reachable(root: type) -> dict[type, str]:
    """Return the Plait classes that annotations lead to, each with the member that names it."""
    reached, waiting = {root: ""}, [root]
    while waiting:
        for each, by in named_by(waiting.pop()):
            if each not in reached and each not in root.__mro__:  # a base of Table stands for it
                reached[each] = by
                waiting.append(each)
    return reached


def named_by(kind: type) -> Iterator[tuple[type, str]]:
    """Yield the classes that the public members of a class name."""
    for base in kind.__mro__:
        if not base.__module__.startswith("plait."):
            continue
        names = {**names_in(base.__module__), "Self": kind}
        for member, annotation in annotations(base):
            by = f"{kind.__name__}.{member}"
            if by not in INTERNAL:
                yield from ((each, by) for each in classes(eval(annotation, names)))


def annotations(kind: type) -> Iterator[tuple[str, str]]:
    """Yield the public members of one class, each with every annotation that it has."""
    for name, raw in vars(kind).items():
        value = raw.fget if isinstance(raw, property) else getattr(raw, "__func__", raw)
        if not name.startswith("_") and inspect.isfunction(value):
            yield from ((name, each) for each in value.__annotations__.values())
    if is_dataclass(kind):
        own = vars(kind).get("__annotations__", {})  # those of a base are evaluated with the base
        yield from ((each.name, str(each.type)) for each in fields(kind) if each.name in own)


def names_in(module: str) -> dict[str, Any]:
    """Return the names of a module, with those that only a type checker imports."""
    names = dict(vars(sys.modules[module]))
    tree = ast.parse(Path(str(sys.modules[module].__file__)).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                if node.module.startswith("plait"):
                    value = getattr(importlib.import_module(node.module), each.name, Any)
                    names.setdefault(each.asname or each.name, value)
                else:
                    names.setdefault(each.asname or each.name, Any)
        elif isinstance(node, ast.Import):
            for each in node.names:
                names.setdefault(each.asname or each.name.split(".")[0], Foreign())
    return names


class Foreign:
    """Stands for a library that is imported for its types alone."""

    def __getattr__(self, name: str) -> object:
        return Any


def classes(annotation: object) -> Iterator[type]:
    """Yield the classes of Plait in an annotation.

    A predicate is SQL text to its caller, and rows are a frame that he has: nobody imports those.
    """
    module = annotation.__module__ if inspect.isclass(annotation) else ""
    foreign = module.startswith(("plait.expr.", "plait.model.data"))
    if inspect.isclass(annotation) and module.startswith("plait.") and not foreign:
        yield annotation
    for each in get_args(annotation):
        for part in each if isinstance(each, list) else [each]:
            yield from classes(part)
