"""The specification, its rules and its models fit together; TLC itself runs in scripts/spec.py."""

from __future__ import annotations

import re

import pytest

from scripts.spec import MODULE, PAGE, RULES, models, without

TEXT = MODULE.read_text(encoding="utf-8")
SINGLE = "single"
"""A module of its own, with rules of its own."""
ALL = {**models(), **{f"long/{name}": path for name, path in models("long").items()}}

MODELS = {name: path for name, path in ALL.items() if name != SINGLE}


def test_every_rule_of_the_specification_is_shown_to_be_needed() -> None:
    listed = TEXT.split("Rules == {", 1)[1].split("}\n", 1)[0]
    named = set(re.findall(r'^  "(\w+)"', listed, re.MULTILINE))
    assert named == {rule.name for rule in RULES if rule.model != SINGLE}
    assert named == set(re.findall(r'Rule\("(\w+)"\)', TEXT))
    alone = MODULE.with_name("single.tla").read_text(encoding="utf-8")
    own = {rule.name for rule in RULES if rule.model == SINGLE}
    assert own == set(re.findall(r'Rule\("(\w+)"\)', alone))


def test_every_rule_is_left_out_of_a_model_that_checks_what_it_breaks() -> None:
    for rule in RULES:
        config = models()[rule.model].read_text(encoding="utf-8")
        assert f'Without = {{"{rule.name}"}}' in without(config, rule.name)
        assert re.search(rf"\b{rule.breaks}\b", config), rule


@pytest.mark.parametrize("name", MODELS)
def test_every_model_checks_every_invariant_and_leaves_no_rule_out(name: str) -> None:
    config = MODELS[name].read_text(encoding="utf-8")
    defined = set(re.findall(r"^(INV_\d\d) ==", TEXT, re.MULTILINE))
    assert defined <= set(re.findall(r"INV_\d\d", config))
    assert "Without = {}" in config


def test_the_page_tells_of_every_model_and_rule() -> None:
    page = PAGE.read_text(encoding="utf-8")
    names = [*models(), *(rule.name for rule in RULES)]
    assert [name for name in names if f"| `{name}` |" not in page] == []
