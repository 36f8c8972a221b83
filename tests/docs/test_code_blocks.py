"""Every Python block of the pages runs as it stands, page by page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^(<!-- not run: .+ -->\n)?```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks_of(page: Path) -> list[tuple[int, str]]:
    """Give line number and code of the blocks to run; doctests and fragments are not."""
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, match.start(2)) + 1, match[2])
        for match in BLOCK.finditer(text)
        if not match[1] and not match[2].startswith(">>>")
    ]


def run(page: Path, names: dict[str, object]) -> None:
    for line, code in blocks_of(page):
        # Padded, so that a traceback names the line of the page.
        exec(compile("\n" * (line - 1) + code, str(page), "exec"), names)


PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if blocks_of(page)]
SPARK = [page for page in PAGES if "plait.spark" in page.read_text(encoding="utf-8")]
PLAIN = [page for page in PAGES if page not in SPARK]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PLAIN, ids=name_of)
def test_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(page, {"__name__": "page"})


@pytest.mark.spark
@pytest.mark.parametrize("page", SPARK, ids=name_of)
def test_page_runs_in_spark(page: Path, tmp_path: Path) -> None:
    """In a process of its own: a JVM keeps the directory that it was started in."""
    code = "\n".join(code for _, code in blocks_of(page))
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
