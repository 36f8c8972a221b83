"""A schedule as a short program that people read, and as a text that replays it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from plait.model.decision import CommitResult
from tests.scheduler.ending import End
from tests.scheduler.run import Line
from tests.scheduler.topic import told

_INSTANT = re.compile(r"\d{17}-([0-9a-f]{2})([0-9a-f]{14})")
_SLOT = re.compile(r"\.meta/timeline/\d{20}/0*(\d+)\.json")
_NUMBER = re.compile(r"\b0{8,}(\d+)\b")
_LEASE = re.compile(r"-([0-9a-f]{2})0+([0-9a-f]+)\b")
_SAID = {
    "crash_before": "dies before it",
    "crash_after": "dies after it",
    "error": "fails, nothing happened",
    "lost_reply": "happens, but an error is the answer",
    "delay": "an error is the answer, and it is still under way",
    "vanish": "dies, and it is still under way",
    "cut_before": "fails, and so does everything from now on",
    "cut_after": "happens, but it and everything from now on fail",
    "early": "sees this, answers later",
    "torn": "sees the first half now, the second later",
    "lands": "lands only now",
    "lost": "never arrives",
    "late": "is under way",
    "twice": "arrives, and is under way once more",
}


def program(end: End) -> Iterator[str]:
    """Write the calls and events of a schedule, one a line, numbered."""
    names = {each.nonces: name for name, each in end.outcomes.items()}
    for number, line in enumerate(end.lines, 1):
        yield f"{number:4}  {_line(line, names)}"
    for name, outcome in end.outcomes.items():
        if outcome.crashed:
            said = "is dead"
        elif outcome.error is not None:
            said = f"raised {type(outcome.error).__name__}: {brief(str(outcome.error), names)}"
        elif isinstance(outcome.result, CommitResult):
            said = f"was told version {outcome.result.version}"
        else:
            said = f"returned {brief(str(outcome.result), names)}"
        yield f"      {name} {said[:200]}"


def _line(line: Line, names: dict[str, str]) -> str:
    call = f"{line.call.operation} {brief(line.call.path, names)}"
    who = line.lane or "*"
    event = f"   ! {_SAID.get(line.event, line.event)}" if line.event else ""
    answer = "" if line.answer is None and not _asks(line) else f" -> {_answer(line, names)}"
    return f"{who:<8} {call}{answer}{event}"


def _asks(line: Line) -> bool:
    return line.call.operation == "find" and not line.event


def _answer(line: Line, names: dict[str, str]) -> str:
    answer = line.answer
    if answer is None:
        return "nothing"
    if isinstance(answer, bytes) and line.call.operation == "receive":
        return brief(told(answer), names)
    if isinstance(answer, bytes):
        return f"{len(answer)} bytes"
    if isinstance(answer, list):
        found = [
            brief(info.path.removeprefix(line.call.path).lstrip("/"), names) for info in answer
        ]
        return "[" + ", ".join(found) + "]"
    return str(answer)


def brief(text: str, names: dict[str, str]) -> str:
    """Shorten names of slots and instants: ``a#1`` is what actor a began first.

    >>> brief(".meta/pending/20231114221320000-a000000000000001.requested", {"a0": "a"})
    '.meta/pending/a#1.requested'
    """

    def instant(match: re.Match[str]) -> str:
        return f"{names.get(match[1], match[1])}#{int(match[2], 16)}"

    text = _SLOT.sub(lambda match: f"slot {match[1]}", text)
    text = _INSTANT.sub(instant, text)
    text = _NUMBER.sub(lambda match: match[1], text)
    return _LEASE.sub(instant, text)


def write_moves(moves: Sequence[tuple[str, str]]) -> str:
    """Write the choices of a schedule as one line of text.

    >>> write_moves([("a:3", ">b"), ("b:2", "!crash_after")])
    'a:3>b b:2!crash_after'
    """
    return " ".join(f"{key}{move}" for key, move in moves)


def read_moves(text: str) -> tuple[tuple[str, str], ...]:
    """Read what ``write_moves`` wrote.

    >>> read_moves("a:3>b b:2!crash_after b:end+121")
    (('a:3', '>b'), ('b:2', '!crash_after'), ('b:end', '+121'))
    """
    found = []
    for word in text.split():
        match = re.fullmatch(r"(start|[^\s:]+:(?:\d+|end))(go|[>!+^-]\S+)", word)
        if match is None:
            message = f"not a choice of a schedule: {word!r}"
            raise ValueError(message)
        found.append((match[1], match[2]))
    return tuple(found)
