"""Which writers ask again for the turn that they were sent (RFC 0038)."""

from __future__ import annotations

import pytest

from plait.stream import coordinator as module
from plait.stream.coordinator import Group
from plait.stream.messages import Hello


def asks(*lives: str) -> list[Hello]:
    return [Hello("t", f"of {life}", life) for life in lives]


def answers(*lives: str) -> list[Hello]:
    return [Hello("t", f"of {life}", life, session="s", number=1) for life in lives]


def test_writers_that_ask_in_turn_are_each_remembered() -> None:
    group = Group("t", "s")
    assert [group.asked_again(asks(life)) for life in ("a", "b", "a")] == [False, False, True]


def test_who_has_answered_may_ask_again() -> None:
    group = Group("t", "s")
    assert not group.asked_again(asks("a"))
    assert not group.asked_again(answers("a"))
    assert not group.asked_again(asks("a"))


def test_writers_that_only_ask_once_do_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_WRITERS_MAX", 10)
    group = Group("t", "s")
    for number in range(30):
        assert not group.asked_again(asks(f"life {number}"))
    assert len(group.unanswered) <= 10
