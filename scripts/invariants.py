"""Show for each invariant the tests that cite it: ``python scripts/invariants.py [INV-08 ...]``.

A test cites an invariant in its docstring, in the message of an assertion, or in the docstring of
its file, which then counts for every test there. tests/architecture/test_invariants.py compares
what is cited with docs/spec/invariants.md.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "spec" / "invariants.md"
NAME = re.compile(r"INV-\d\d\b")


def promises() -> dict[str, str]:
    """Return what the page of invariants promises, by id."""
    rows = re.findall(r"^\| (INV-\d\d) \| ([^|]+) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    return {name: text.strip() for name, text in rows}


def cited(root: Path = ROOT / "tests") -> dict[str, list[str]]:
    """Return for each invariant that tests cite the tests that do, as pytest names them."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(root.rglob("test_*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        of_file = set(NAME.findall(ast.get_docstring(tree) or ""))
        for test in _tests(tree):
            for name in sorted(of_file | _names_in(test)):
                found[name].append(f"{path.relative_to(root.parent)}::{test.name}")
    return dict(sorted(found.items()))


def _tests(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            yield node


def _names_in(test: ast.FunctionDef) -> set[str]:
    texts = (each.value for each in ast.walk(test) if isinstance(each, ast.Constant))
    return {name for text in texts if isinstance(text, str) for name in NAME.findall(text)}


def main() -> None:
    """Print the index, or a part of it."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("names", nargs="*", help="such as INV-08; all by default")
    wanted = arguments.parse_args().names
    index = cited()
    for name, text in promises().items():
        if not wanted or name in wanted:
            tests = index.get(name, [])
            print(f"{name} ({len(tests)} tests): {text}", *tests, sep="\n  ")


if __name__ == "__main__":
    main()
