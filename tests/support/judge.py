"""Has TLC judge whether traces of the real code are behaviours of the specification."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.tlc import Tlc, TlcMissingError, find_tlc, run
from tests.conftest import missing
from tests.support.effort import MORE
from tests.support.trace import Event

SPEC = Path(__file__).resolve().parents[2] / "docs" / "spec"
LIMIT_S = 3000 if MORE else 500
_REACHED = re.compile(r'<<"reached", (\d+), (\d+)>>')
SERVICES = {"rollback", "clean"}
"""Decisions with a kind of their own in the specification; all others are commits."""


@dataclass(frozen=True)
class Judgement:
    """How far one trace could be followed."""

    accepted: bool
    refused: Event | None
    """The first event that no behaviour can do there; None if all were followed."""


def require_tlc() -> Tlc:
    """Give TLC; skip the test where it is missing, or fail it in CI."""
    try:
        return find_tlc(os.environ)
    except TlcMissingError as error:
        missing(str(error))
        raise


def judge(traces: Iterable[Sequence[Event]]) -> list[Judgement]:
    """Judge traces, all in one start of TLC."""
    given = [list(trace) for trace in traces]
    tlc = require_tlc()
    with tempfile.TemporaryDirectory(prefix="plait-judge-") as place:
        root = Path(place) / "given.tla"
        recorded = ",\n".join(f"<<{', '.join(map(_record, trace))}>>" for trace in given)
        module = f"EXTENDS trace\nGiven == <<\n{recorded}>>\n"
        root.write_text(f"---- MODULE given ----\n{module}====\n", encoding="utf-8")
        modules = [root, SPEC / "commit.tla", SPEC / "trace.tla"]
        result = run(tlc, modules, "given", _config(given), limit_s=LIMIT_S, jit=MORE)
    assert result.complete, result.text[-4000:]
    reached = dict.fromkeys(range(1, len(given) + 1), 0)
    for number, at in _REACHED.findall(result.text):
        reached[int(number)] = max(reached[int(number)], int(at))
    return [_judgement(trace, reached[n]) for n, trace in enumerate(given, start=1)]


def _judgement(trace: list[Event], reached: int) -> Judgement:
    accepted = reached == len(trace) + 1
    return Judgement(accepted, None if accepted else trace[reached - 1])


def _config(traces: list[list[Event]]) -> str:
    """Cast the actors by what they do. Whoever neither writes nor reads may recover and clean."""
    events = [event for trace in traces for event in trace]
    doing = {what: {e.who for e in events if e.do == what} for what in ("begin", "lease")}
    others = {event.who for event in events} - doing["begin"] - doing["lease"]
    places = {str(e.facts["place"]) for e in events if "place" in e.facts}
    constants = {
        **dict.fromkeys(
            ("Services", "Keepers", "Operators", "OtherRows", "Without"), frozenset[str]()
        ),
        **dict.fromkeys(("PutIfAbsent", "Stale", "FalseDeath", "PlacesKnown", "AnyHorizon"), True),
        "LostReplies": any(e.facts.get("what") == "unknown" for e in events),
        "SameToken": False,
        "Grace": False,
        "Clocks": frozenset({0}),
        "Writers": doing["begin"],
        "Readers": doing["lease"],
        "Recoverers": others,
        "Cleaners": others,
        "Buckets": places or {"none"},
        "Past": 1,
        "MaxVersion": 1 + max(sum(e.do == "publish" for e in trace) for trace in traces),
        "Redos": max(sum(e.do == "stage" for e in trace) for trace in traces),
    }
    lines = [f"{name} = {_value(value)}" for name, value in constants.items()]
    given = ["SPECIFICATION TraceSpec", "CHECK_DEADLOCK FALSE", "CONSTRAINT Reached"]
    return "\n".join([*given, "CONSTANTS", "Recorded <- Given", *lines, ""])


def _record(event: Event) -> str:
    facts = {"do": event.do, "who": event.who, **event.facts}
    if event.do == "publish" and facts["kind"] not in SERVICES:
        facts["kind"] = "commit"
    return f"[{', '.join(f'{name} |-> {_value(value)}' for name, value in facts.items())}]"


def _value(value: object) -> str:
    """Write a value as TLA+ does."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return f"<<{', '.join(map(_value, value))}>>"
    assert isinstance(value, (set, frozenset)), value
    return f"{{{', '.join(sorted(map(_value, value)))}}}"
