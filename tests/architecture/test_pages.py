"""Links outside of docs/ lead somewhere (mkdocs checks those inside), and pages are current."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.message_schema import PAGE, TEXT
from scripts.reference import LINE, PARTS
from scripts.wrap import COLUMNS, MADE, our_pages, wrap

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "rfc").rglob("*.md")),
    ROOT / "examples/README.md",
    ROOT / "tests/README.md",
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    assert not [each for each in targets if not (page.parent / each).exists()]


FILE = re.compile(r"`((?:tests|scripts|benchmarks|examples|docs|rfc)/[\w./-]+\.\w+)`")
TO_COME = "rfc/proposed/NNNN-title.md"
PROSE = sorted({*PAGES, *ROOT.glob("docs/**/*.md"), *ROOT.glob("rfc/**/*.md")})


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    """Such as the tests of an RFC: they move, and the page must follow."""
    named = {*FILE.findall(page.read_text(encoding="utf-8"))} - {TO_COME}
    assert [each for each in named if not (ROOT / each).exists()] == []


@pytest.mark.parametrize("page", our_pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_wrapped(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert wrap(text) == text, "run make fmt"


def test_wrapping_moves_words_of_long_paragraphs_alone() -> None:
    word = "eleven_1234"
    text = " ".join([word] * 20)
    code = f"`{text}`"
    short = "two\nlines\n"
    kept = f"{short}\n| {text} |\n\n```sh\n{text}\n```\n\n# {text}\n\n{code}\n"
    assert wrap(kept) == kept
    assert wrap(f"{MADE}hand -->\n\n{text}\n") == f"{MADE}hand -->\n\n{text}\n"
    lines = wrap(f"{short}\n- {text}\n  - {text} [{word}]({word}?x y)\n").splitlines()
    assert lines[:3] == ["two", "lines", ""]
    assert max(map(len, lines)) <= COLUMNS
    assert [line[: len(line) - len(line.lstrip(" -"))] for line in lines[3:]] == [
        *("- ", "  ", "  "),
        *("  - ", "    ", "    "),
    ]
    assert wrap("\n".join(lines) + "\n") == "\n".join(lines) + "\n"


@pytest.mark.parametrize("marker", ["-", "+", "1.", "#", ">", "|"])
def test_wrapping_begins_no_list_in_a_paragraph(marker: str) -> None:
    wrapped = wrap(f"{'x' * (COLUMNS - 2)} {marker} {'y' * 10}\n")
    assert not [line for line in wrapped.splitlines() if line.startswith(marker)]


def test_the_schema_of_messages_is_that_of_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == TEXT, "run make fmt"


def test_each_part_that_the_code_makes_has_its_place_and_names_its_source() -> None:
    texts = (page.read_text(encoding="utf-8") for page in ROOT.glob("docs/reference/*.md"))
    lines = [found for text in texts for found in LINE.finditer(text)]
    assert sorted(found[1] for found in lines) == sorted(PARTS)
    assert [found[2] for found in lines if not (ROOT / found[2]).exists()] == []


TEMPLATE = (ROOT / "rfc/TEMPLATE.md").read_text(encoding="utf-8")
HEADING = re.compile(r"^## (\d+ .+)$", re.MULTILINE)
RFCS = [*sorted((ROOT / "rfc").glob("*/*.md"))]


@pytest.mark.parametrize("page", RFCS, ids=lambda page: page.name)
def test_an_rfc_follows_the_template(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings == [each for each in HEADING.findall(TEMPLATE) if each in headings]
    assert {"1 Summary", "2 Problem, with evidence"} <= {*headings}
    assert re.match(r"# RFC \d{4}: [A-Z].*\n\nStatus: (accepted|proposed), \d{4}-\d\d-\d\d", text)
