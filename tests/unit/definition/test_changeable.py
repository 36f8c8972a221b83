"""One table says what may be changed, and how: the docs have it, and errors follow it."""

from __future__ import annotations

import inspect
from pathlib import Path

import click
import pytest

from plait import Layout, OptionError, Table
from plait.cli.main import ROOT
from plait.definition.changeable import CHANGES, NEVER, QUIET
from plait.model.contract import PARTS

PAGE = Path(__file__).parents[3] / "docs/how-to/repush.md"
PLACE = {"allow", "if_not_exists", "storage_options", "uri"}
"""Arguments of ``Table.create`` that do not define the table."""
WORK = {"commit_id", "expire", "rows_per_task", "source", "source_options", "spark"}
"""Arguments of ``Layout.repush`` that say how it works, and not where it leads."""


def arguments(call: object) -> set[str]:
    return set(inspect.signature(call).parameters) - {"self", "cls"}  # type: ignore[arg-type]  # a method


def test_everything_that_defines_a_table_is_in_the_table_of_changes() -> None:
    assert arguments(Table.create) - PLACE <= set(CHANGES)
    assert arguments(Layout.repush) - WORK <= set(CHANGES)


def test_what_a_repush_takes_may_be_changed_while_others_write() -> None:
    for name in arguments(Layout.repush) - WORK:
        assert CHANGES[name].live not in (QUIET, NEVER), name
    never = {name for name, change in CHANGES.items() if change.live == NEVER}
    assert not never & arguments(Layout.repush)
    assert {name for name, change in CHANGES.items() if change.live == QUIET} == set(PARTS)


def test_the_page_has_the_table_of_changes_row_by_row() -> None:
    rows = "\n".join(change.row for change in CHANGES.values())
    assert rows in PAGE.read_text(encoding="utf-8")


def test_the_options_that_the_table_names_are_those_of_the_command() -> None:
    command = ROOT.get_command(click.Context(ROOT), "repush")
    assert command is not None
    options = {text for each in command.params for text in each.opts}
    for name in arguments(Layout.repush) - WORK - {"properties"}:
        words = CHANGES[name].how.replace("`", " ").split()
        named = {word for word in words if word.startswith("--")}
        assert named
        assert named <= options, name


@pytest.mark.parametrize("name", CHANGES)
def test_set_says_how_to_change_what_is_no_option_and_writes_nothing(name: str) -> None:
    table = Table.create(f"memory://changing-{name}", "id bigint", record_key="id")
    with pytest.raises(OptionError) as caught:
        table.alter.set({name: "x"})
    assert caught.value.facts["key"] == name
    hint = caught.value.hint
    change = CHANGES[name]
    if change.live == NEVER:
        assert "new table" in hint
    else:
        assert change.how.replace("`", "") in hint
    assert ("repush" in hint) == ("repush" in change.how)
    assert table.version == 0
