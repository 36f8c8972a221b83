"""What ``make release-check`` decides before it builds anything."""

from __future__ import annotations

import pytest

from scripts.release_check import (
    CHANGELOG,
    INIT,
    PROJECT,
    ROOT,
    declared_versions,
    misplaced,
    tag_problems,
    version_problems,
)


def test_versions_of_this_checkout_agree() -> None:
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in (PROJECT, INIT, CHANGELOG)]
    assert not version_problems(declared_versions(*texts))


def test_versions_are_read_from_where_each_file_declares_its_own() -> None:
    """The newest heading counts, and neither a format version nor that of a tool."""
    versions = declared_versions(
        '[tool.x]\nversion = "9"\n[project]\nname = "plait"\nversion = "1.2.0"\n',
        'x = 1\n__version__ = "1.2.0"\n',
        "# Changelog\n\n## 1.2.0 (unreleased)\n\n### Added\n\n## 1.1.0\n",
    )
    assert set(versions.values()) == {"1.2.0"}
    assert not version_problems(versions)


@pytest.mark.parametrize("wrong", [PROJECT, INIT, CHANGELOG])
@pytest.mark.parametrize("value", ["", "1.2.1"])
def test_version_that_differs_or_is_missing_is_told_with_its_file(wrong: str, value: str) -> None:
    versions = {PROJECT: "1.2.0", INIT: "1.2.0", CHANGELOG: "1.2.0", wrong: value}
    (problem,) = version_problems(versions)
    assert f"{wrong} has {value or 'none'}" in problem


def test_three_files_without_a_version_do_not_agree() -> None:
    assert version_problems({PROJECT: "", INIT: "", CHANGELOG: ""})


def test_a_tag_of_another_version_or_of_none_that_is_dated_is_refused() -> None:
    dated, undated = "# Changelog\n\n## 1.2.0 (2026-12-01)\n", "## 1.2.0 (unreleased)\n"
    assert tag_problems("v1.2.0", "1.2.0", dated) == []
    assert len(tag_problems("v1.2.0", "1.2.0", undated)) == 1
    assert len(tag_problems("1.2.0", "1.2.0", dated)) == 1
    assert len(tag_problems("v1.2.1", "1.2.0", undated)) == 2


def test_wheel_with_tests_or_the_scheduler_is_found_out() -> None:
    shipped = ["plait/__init__.py", "plait/testing/store_kit.py", "plait-1.dist-info/METADATA"]
    not_shipped = ["plait/testing/scheduler/run.py", "plait/x/test_y.py", "tests/conftest.py"]
    assert misplaced(shipped + not_shipped) == sorted(not_shipped)
