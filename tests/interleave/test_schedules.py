"""The scheduler itself: every order, each once."""

from __future__ import annotations

from collections.abc import Mapping
from math import comb

from plait.storage.port import Store
from tests.interleave.schedules import Actor, every_schedule
from tests.support.protocol import memory


def orders(lengths: Mapping[str, int], switches: int) -> list[str]:
    def make() -> tuple[Store, dict[str, Actor]]:
        def actor(name: str, length: int) -> Actor:
            return lambda store: [store.put(f"{name}{n}", b"") for n in range(length)]

        return memory(), {name: actor(name, length) for name, length in lengths.items()}

    return ["".join(outcome.order) for _, outcome in every_schedule(make, switches=switches)]


def test_every_order_of_two_actors_comes_once() -> None:
    found = orders({"a": 3, "b": 4}, switches=99)
    assert len(found) == len(set(found)) == comb(7, 3)


def test_every_order_of_three_actors_comes_once() -> None:
    found = orders({"a": 2, "b": 2, "c": 2}, switches=99)
    assert len(found) == len(set(found)) == comb(6, 2) * comb(4, 2)


def test_switches_are_bounded() -> None:
    assert orders({"a": 2, "b": 2}, switches=0) == ["aabb", "bbaa"]
    assert set(orders({"a": 2, "b": 2}, switches=1)) == {"aabb", "abba", "bbaa", "baab"}


def test_an_actor_that_raises_is_an_outcome() -> None:
    def make() -> tuple[Store, dict[str, Actor]]:
        return memory(), {"a": lambda store: store.find("../b"), "b": lambda store: 7}

    for _, outcome in every_schedule(make, switches=9):
        assert outcome.results == {"b": 7}
        assert set(outcome.errors) == {"a"}
