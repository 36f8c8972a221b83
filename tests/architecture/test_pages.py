"""Links outside of docs/ lead somewhere (mkdocs checks those inside), and pages are current."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.reference import DIRECTORY, pages

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "rfc").rglob("*.md")),
    ROOT / "tests/README.md",
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    assert not [each for each in targets if not (page.parent / each).exists()]


@pytest.mark.parametrize("name", pages())
def test_a_reference_page_is_what_the_code_makes(name: str) -> None:
    assert (DIRECTORY / name).read_text(encoding="utf-8") == pages()[name], "run make reference"
