"""Each short example prints what its header says, and the page of examples names them all."""

from __future__ import annotations

import ast
import re
import runpy
import textwrap
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
LINES_MAX = 42
ROW = re.compile(r"^\| \[`(\w+\.py)`\]\((\w+\.py)\) \| (.+) \|$", re.MULTILINE)


def header_of(example: Path) -> str:
    """Return the docstring of an example."""
    header = ast.get_docstring(ast.parse(example.read_text(encoding="utf-8")))
    assert header is not None
    return header


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_its_header_says(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, promised = header_of(example).partition("\n\nIt prints:\n\n")
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out == textwrap.dedent(promised) + "\n"


def test_the_page_of_examples_says_of_each_what_one_sees() -> None:
    rows = ROW.findall((FOLDER / "README.md").read_text(encoding="utf-8"))
    seen = {e.name: header_of(e).partition("\n")[0].removeprefix("You see ") for e in EXAMPLES}
    assert {name: says for name, _, says in rows} == seen
    assert all(name == target for name, target, _ in rows)


def test_there_are_eight_examples_and_each_fits_on_a_screen() -> None:
    lengths = {e.name: len(e.read_text(encoding="utf-8").splitlines()) for e in EXAMPLES}
    assert len(lengths) == 8
    assert {name for name, lines in lengths.items() if lines > LINES_MAX} == set()
