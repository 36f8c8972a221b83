"""Reports are shown as JSON by one rule."""

from __future__ import annotations

import enum
import importlib
import json
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

import plait
from plait.model.instant import Instant
from plait.model.plain import Plain, to_plain

LEFT_OUT = ("plait.spark", "plait.interop", "plait.testing")
"""They have no reports, and some need a JVM."""


class Kind(enum.StrEnum):
    A = "a"


@dataclass(frozen=True, slots=True)
class Part(Plain):
    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Whole(Plain):
    KEYS = "name began=began_ms silent_ms parts bytes size=part.size_bytes total"

    name: Instant
    began_ms: int | None
    silent_ms: int
    bytes: Kind
    parts: tuple[Part, ...] = ()
    part: Part | None = None
    hidden: dict[str, object] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return len(self.parts)


def every_report() -> list[type[Plain]]:
    for module in pkgutil.walk_packages(plait.__path__, "plait."):
        if not module.name.startswith(LEFT_OUT) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    return [each for each in below(Plain) if each.__module__.startswith("plait.")]


def below(kind: type[Plain]) -> Iterator[type[Plain]]:
    for each in kind.__subclasses__():
        yield each
        yield from below(each)


def test_keys_have_the_order_of_the_class_and_what_is_not_known_is_none() -> None:
    name = Instant("20260101000000000", "0123456789abcdef")
    part = Part("p", 3)
    shown = Whole(name, 1000, 5, Kind.A, (part,), part).to_dict()
    assert json.dumps(shown) == json.dumps(
        {
            "name": "20260101000000000-0123456789abcdef",
            "began": "1970-01-01T00:00:01.000Z",
            "silent_ms": 5,
            "parts": [{"name": "p", "size_bytes": 3}],
            "bytes": "a",
            "size": 3,
            "total": 1,
        }
    )
    less = Whole(name, None, 5, Kind.A).to_dict()
    assert (less["began"], less["size"]) == (None, None)


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "a", [1, "b"], {"a": {"b": [None]}}])
def test_values_of_json_stay_as_they_are(value: object) -> None:
    assert to_plain(value) == value


def test_each_key_of_each_report_is_an_attribute() -> None:
    reports = every_report()
    assert len(reports) > 50
    for report in reports:
        named = [each.rpartition("=")[2].partition(".")[0] for each in report.KEYS.split()]
        fields = set(report.__dataclass_fields__)
        wrong = [each for each in named if each not in fields and not hasattr(report, each)]
        assert not wrong, (report, wrong)
