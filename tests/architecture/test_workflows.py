"""Workflows run our make targets on each Python, and nothing that can change under us."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PINNED = re.compile(r"uses: [\w-]+/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
TARGET = re.compile(r"^([a-z][a-z-]+):.*## ", re.MULTILINE)
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]


def jobs_of(workflow: Path) -> dict[str, Any]:
    return yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_an_action_is_pinned_by_digest(workflow: Path) -> None:
    lines = workflow.read_text(encoding="utf-8").splitlines()
    uses = [line.strip().removeprefix("- ") for line in lines if "uses:" in line]
    assert uses
    assert [each for each in uses if not PINNED.fullmatch(each)] == []


def test_one_action_has_one_digest_everywhere() -> None:
    text = "".join(workflow.read_text(encoding="utf-8") for workflow in WORKFLOWS)
    pins = {pin.removeprefix("uses: ") for pin in PINNED.findall(text)}
    assert len({pin.partition("@")[0] for pin in pins}) == len(pins) > 3


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_only_read_unless_a_job_waits_for_an_approval(workflow: Path) -> None:
    whole = yaml.safe_load(workflow.read_text(encoding="utf-8"))
    assert whole["permissions"] == {"contents": "read"}
    for job in whole["jobs"].values():
        assert job["timeout-minutes"] > 0
        assert "permissions" not in job or job["environment"] == "release"


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_what_a_workflow_makes_is_a_target(workflow: Path) -> None:
    targets = set(TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8")))
    steps = [step for job in jobs_of(workflow).values() for step in job["steps"]]
    made = [words[1] for step in steps if (words := step.get("run", "").split())[:1] == ["make"]]
    assert made
    assert set(made) <= targets


def test_every_python_that_is_supported_runs_the_tests() -> None:
    fast = jobs_of(ROOT / ".github/workflows/test.yml")["fast"]
    assert fast["strategy"]["matrix"]["python"] == PYTHONS
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'requires-python = ">={PYTHONS[0]}"' in project
