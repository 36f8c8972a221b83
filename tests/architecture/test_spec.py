"""The specification, its rules and its models fit together; TLC itself runs in scripts/spec.py."""

from __future__ import annotations

import re

import pytest

from scripts.spec import MODULE, PAGE, RULES, SPEC, models, module_of, without

TEXT = MODULE.read_text(encoding="utf-8")
ALL = {**models(), **{f"long/{name}": path for name, path in models("long").items()}}
MODULES = {name: module_of(path.read_text(encoding="utf-8")).stem for name, path in ALL.items()}
"""Of each model: the module that it is a model of."""
MODELS = {name: path for name, path in ALL.items() if MODULES[name] == "commit"}


def test_the_rules_that_the_specification_lists_are_those_in_its_text() -> None:
    listed = TEXT.split("Rules == {", 1)[1].split("}\n", 1)[0]
    named = set(re.findall(r'^  "(\w+)"', listed, re.MULTILINE))
    assert named == set(re.findall(r'Rule\("(\w+)"\)', TEXT))


@pytest.mark.parametrize("module", sorted(set(MODULES.values())))
def test_every_rule_of_a_module_is_shown_to_be_needed(module: str) -> None:
    text = (SPEC / f"{module}.tla").read_text(encoding="utf-8")
    shown = {rule.name for rule in RULES if MODULES[rule.model] == module}
    assert shown == set(re.findall(r'Rule\("(\w+)"\)', text))


@pytest.mark.parametrize("name", ALL)
def test_a_model_sets_every_constant_of_its_module(name: str) -> None:
    text = (SPEC / f"{MODULES[name]}.tla").read_text(encoding="utf-8")
    declared = text.split("CONSTANTS", 1)[1].split("\n\n(*", 1)[0].split("VARIABLES", 1)[0]
    constants = re.findall(r"^  (\w+),? +\\\*", declared, re.MULTILINE)
    config = ALL[name].read_text(encoding="utf-8")
    assert sorted(constants) == sorted(re.findall(r"^  (\w+) = ", config, re.MULTILINE))


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
