"""One class name means one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SRC = Path(__file__).resolve().parents[2] / "src"
SHARED: dict[str, str] = {}
"""Names that two classes share, each with the reason."""


def test_no_public_class_name_is_defined_twice() -> None:
    twice = {name: where for name, where in public_classes().items() if len(where) > 1}
    told = [f"{name}: {', '.join(where)}" for name, where in twice.items() if name not in SHARED]
    assert not told, f"rename all but one: {told}"
    assert set(SHARED) <= set(twice), "an exception that is needed no more"


def public_classes() -> dict[str, list[str]]:
    """Return the files that define each public class of a module."""
    classes: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(str(path.relative_to(SRC)))
    return classes
