"""Every block of the README and the pages runs as it stands, page by page, or says why not."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from importlib.metadata import metadata
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

from plait import Table
from plait.cli.main import main
from tests.services.local_spark import warm_workers

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^(<!-- not run: [^\n]+ -->\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ELSEWHERE = {
    "docs/how-to/use-sql.md": "SQL: tests/integration/spark/test_sql.py",
}
SHELL = ("sh", "console")
OUTPUT = ("text", "json", "")
PROJECT = "toml"
RUN = ("python", PROJECT, *SHELL, *OUTPUT)
EXTRA = re.compile(r"plait(?:\[(.+)\])?")


@dataclass(frozen=True)
class Block:
    """One block of code."""

    line: int
    language: str
    text: str
    reason: str
    """Why it does not run; nothing if it does."""


def blocks_of(page: Path, *languages: str) -> list[Block]:
    """Return the blocks of a page that run here."""
    return [
        block for block in every_block(page) if block.language in languages and not block.reason
    ]


def every_block(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    elsewhere = ELSEWHERE.get(name_of(page), "")
    return [
        Block(text.count("\n", 0, match.start(3)) + 1, match[2], match[3], match[1] or elsewhere)
        for match in BLOCK.finditer(text)
    ]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


EVERY = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in EVERY if blocks_of(page, "python", *SHELL)]
SPARK = [page for page in PAGES if any("spark" in b.text for b in blocks_of(page, "python"))]
PLAIN = [page for page in PAGES if page not in SPARK]


@pytest.mark.parametrize("page", EVERY, ids=name_of)
def test_every_block_runs_or_says_why_not(page: Path) -> None:
    fences = re.findall(r"^```", page.read_text(encoding="utf-8"), re.MULTILINE)
    blocks = every_block(page)
    assert len(fences) == 2 * len(blocks), "a block has no end, or is indented"
    unknown = [b for b in blocks if not b.reason and b.language not in RUN]
    assert not unknown


@pytest.mark.parametrize("page", PLAIN, ids=name_of)
def test_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks_of(page, "python", PROJECT):
        if block.language == PROJECT:
            install(block, page, tmp_path / "site", monkeypatch)
            continue
        # Padded, so that a traceback names the line of the page.
        exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), names)
    run_shell(page, tmp_path)


RUNNER = """
import json, sys, traceback
failed = {}
for name, code in json.load(sys.stdin).items():
    try:
        exec(compile(code, name, "exec"), {"__name__": "__main__"})
    except BaseException:
        failed[name] = traceback.format_exc()
    print(f"{name}: {'failed' if name in failed else 'passed'}", flush=True)
sys.exit("\\n".join(failed.values()) or 0)
"""
"""Runs pages, each with names of its own; one that fails does not keep the next from running."""


@pytest.mark.spark
def test_pages_run_in_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one process of their own: a JVM keeps the directory that it was started in.

    No two pages may write a table of one name.
    """
    pages = {name_of(page): blocks_of(page, "python") for page in SPARK}
    code = {name: "\n".join(block.text for block in blocks) for name, blocks in pages.items()}
    (tmp_path / "spark-defaults.conf").write_text("spark.sql.shuffle.partitions 2\n")
    command = [sys.executable, "-c", RUNNER]
    with warm_workers():
        done = subprocess.run(
            command,
            input=json.dumps(code),
            cwd=tmp_path,
            env={**os.environ, "SPARK_CONF_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-6000:]
    assert done.stdout.count(": passed\n") == len(SPARK) > 1
    monkeypatch.chdir(tmp_path)
    for page in SPARK:
        run_shell(page, tmp_path)


def test_first_example_of_the_readme_runs_as_pasted_into_a_prompt(tmp_path: Path) -> None:
    first = blocks_of(ROOT / "README.md", "python")[0]
    command = [sys.executable, "-i", "-q", "-c", ""]
    done = subprocess.run(
        command, input=first.text, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "Error" not in done.stderr, done.stderr
    assert "CommitResult(version=2" in done.stdout


def install(block: Block, page: Path, handle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install, as pip does, the package whose pyproject a page shows, and whose functions too."""
    info = handle / "shown-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shown\nVersion: 1.0\n")
    lines = []
    for group, entries in tomllib.loads(block.text)["project"]["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
        for module, _, function in (value.partition(":") for value in entries.values()):
            code = next(b.text for b in blocks_of(page, "python") if f"def {function}(" in b.text)
            (handle / f"{module}.py").write_text(code, encoding="utf-8")
            monkeypatch.setitem(sys.modules, module, ModuleType(module))  # gone after the test
            del sys.modules[module]
    (info / "entry_points.txt").write_text("\n".join([*lines, ""]))
    monkeypatch.syspath_prepend(str(handle))


def run_shell(page: Path, home: Path) -> None:
    """Run the commands of a page after its Python.

    ``TABLE`` is a small table, which the stream ``APPLICATION`` has written; ``REPLICA`` is another
    one with the same rows.
    """
    blocks = blocks_of(page, *SHELL)
    for name in ("TABLE", "REPLICA"):
        if any(name in block.text for block in blocks):
            ddl = "id bigint"
            assert main(["create", str(home / name), "--schema", ddl, "--key", "id"]) == 0
            stream = Table.open(str(home / name)).stream("APPLICATION")
            with stream.writer(after=None, end="1") as writer:
                writer.write(pa.table({"id": [1]}))
    for block in blocks:
        for line in block.text.splitlines():
            run_command(shlex.split(line.removeprefix("$ "), comments=True))


def run_command(words: list[str]) -> None:
    """Run ``tablectl`` and scripts of ours; ask make and pip whether they know what is named."""
    match words:
        case ["tablectl", *arguments]:
            assert main(arguments) == 0
        case ["make", *_]:
            subprocess.run([*words, "--dry-run"], cwd=ROOT, check=True, capture_output=True)
        case ["pip", "install", what]:
            found = EXTRA.fullmatch(what)
            assert found
            known = metadata("plait").get_all("Provides-Extra") or []
            assert set((found[1] or known[0]).split(",")) <= set(known)
        case ["python", script, *_] if script.startswith("scripts/"):
            subprocess.run([sys.executable, *words[1:]], cwd=ROOT, check=True, capture_output=True)
        case _:
            pytest.fail(f"nobody runs {words}: add a 'not run' comment that says why")
