"""One name for one thing: options have the names of Python's arguments, and their old ones."""

from __future__ import annotations

import click
import pytest

from plait.cli.main import ROOT

NAMES = {
    "create": {"record_key": "--key", "partition_by": "--partition", "table_type": "--type"},
    "sink": {"record_key": "--key"},
    "repush": {"table_type": "--type", "property": "--set"},
    "cluster": {"order_by": "--by"},
    "repair": {"source": "--from", "source_option": "--from-option"},
    "replicas": {"replica": "--sink"},
}


@pytest.mark.parametrize("command", NAMES)
def test_an_option_has_the_name_of_the_argument_and_its_other_one(command: str) -> None:
    found = ROOT.get_command(click.Context(ROOT), command)
    assert found is not None
    for argument, other in NAMES[command].items():
        name = f"--{argument.replace('_', '-')}"
        assert [{name, other} <= set(each.opts) for each in found.params].count(True) == 1, name


@pytest.mark.parametrize("key", ["--record-key", "--key"])
def test_both_names_of_an_option_say_the_same(tablectl, tmp_path, key: str) -> None:
    uri, other = tmp_path / "t", "--partition" if key == "--key" else "--partition-by"
    ran = tablectl(
        "create", uri, "--schema", "id bigint, p string", key, "id", other, "p", "--json"
    )
    assert (ran.code, ran.data["bucket_spec"]["key"], ran.data["partition_by"]) == (
        0,
        ["id"],
        ["p"],
    )
