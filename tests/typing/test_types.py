"""A type checker sees misspelt words, wrong plans and names that are not there (RFC 0040)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
EXPECTED = re.compile(r"# E: ([a-z-]+)$")
FOUND = re.compile(r"(?P<file>\w+)\.py:(?P<line>\d+): error: .*\[(?P<code>[a-z-]+)\]$")


@pytest.mark.slow
def test_mypy_refuses_what_is_wrong_and_nothing_else() -> None:
    """One run over both files, with the project's settings and cache."""
    files = [HERE / "wrong.py", HERE / "right.py"]
    expected = {
        (file.stem, number, match[1])
        for file in files
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if (match := EXPECTED.search(line))
    }
    command = [sys.executable, "-m", "mypy", "--no-error-summary", *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert not done.stderr
    matches = (FOUND.search(line) for line in done.stdout.splitlines())
    found = {(each["file"], int(each["line"]), each["code"]) for each in matches if each}
    assert found == expected, done.stdout
    assert expected
