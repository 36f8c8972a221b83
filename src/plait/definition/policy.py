"""Conflict policies: those of Plait, and one's own, which cannot break a table.

A rule is asked only where two operations on rows wrote into one bucket. Where they meet places,
changes of the schema, services or restores, the matrix stands. Whatever a rule answers, the commit
is validated, and its rows are done again on the head, or it is refused: so a rule decides which
updates may be lost to a later one, and never whether the table is whole.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import entry_points
from typing import Final

from plait.errors import PolicyError, UnsupportedFeatureError
from plait.model.contract import APART, SAME, UNKNOWN, Meeting, Rule

FILE_GROUP, KEY, MERGE = "file_group", "key", "merge"
POLICIES: Final = (FILE_GROUP, KEY, MERGE)
"""The policies that come with Plait."""
GROUP = "plait.policies"


class Verdict(enum.StrEnum):
    """What a decision in the window means for us, from harmless to hopeless."""

    COMPATIBLE = "compatible"
    CARRY = "carry"
    """What we hid, or rewrote, is carried over by the places of rows; nothing is done again."""
    REBASE = "rebase"
    """Our buckets that meet theirs are done again on the new head, without asking."""
    RESTAGE = "restage"
    """All that we staged is staged again under the layout that they gave the table."""
    RETRY = "retry"
    """The other commit was first; ours runs again if the caller allowed it."""
    INCOMPATIBLE = "incompatible"


ALLOWED = (Verdict.REBASE, Verdict.RETRY, Verdict.INCOMPATIBLE)
"""What a rule may answer, from lenient to strict. Rows in one bucket are never simply compatible:
one of the two would put back what the other one replaced."""


def require_policy(name: str) -> Rule | None:
    """Find the rule of a table's policy; None for one of Plait's own.

    Raises:
        UnsupportedFeatureError: it is not installed here, or more than once.
    """
    return None if name in POLICIES else _load(name)


@functools.cache
def _load(name: str) -> Rule:
    points = list(entry_points(group=GROUP, name=name))
    if len(points) != 1:
        how = "is not installed here" if not points else f"is installed {len(points)} times"
        message = f"the table's conflict policy {name!r} {how}"
        hint = f"install the one package that has the entry point {name!r} in the group {GROUP!r}"
        raise UnsupportedFeatureError(message, hint=hint, feature=f"policy {name}", group=GROUP)
    try:
        rule: object = points[0].load()
    except Exception as error:
        message = f"the conflict policy {name!r} cannot be loaded: {error}"
        hint = f"import {points[0].value!r} to see the full error"
        raise UnsupportedFeatureError(
            message, hint=hint, feature=f"policy {name}", group=GROUP
        ) from error
    if not callable(rule):
        message = f"the conflict policy {name!r} is not a function"
        hint = f"{points[0].value!r} must take a plait.Meeting"
        raise UnsupportedFeatureError(message, hint=hint, feature=f"policy {name}", group=GROUP)
    return rule


def judge_meeting(name: str, rule: Rule, meeting: Meeting) -> Verdict:
    """Ask a rule, and hold it to its bounds.

    Where nobody can tell which keys they wrote, the strictest of all its answers counts. Rows that
    were computed from a named read are never put over others of the same key.

    Raises:
        PolicyError: the rule raised, or answered what it may not.
    """
    asked = [meeting]
    if meeting.keys == UNKNOWN:
        asked += [replace(meeting, keys=APART), replace(meeting, keys=SAME)]
    verdicts = [_answer(name, rule, each) for each in asked]
    if meeting.computed and meeting.keys != APART:
        verdicts.append(Verdict.RETRY)
    return strictest(verdicts)


def strictest(verdicts: list[Verdict]) -> Verdict:
    """Return the one that allows least."""
    return max(verdicts, key=list(Verdict).index)


def _answer(name: str, rule: Callable[[Meeting], object], meeting: Meeting) -> Verdict:
    hint = f"a policy returns one of {', '.join(ALLOWED)}; plait.testing.PolicyKit checks it"
    try:
        answer = rule(meeting)
    except Exception as error:
        message = (
            f"the conflict policy {name!r} failed on {meeting}: {type(error).__name__}: {error}"
        )
        raise PolicyError(message, hint=hint, policy=name) from error
    if answer not in ALLOWED:
        message = f"the conflict policy {name!r} answered {answer!r} to {meeting}"
        raise PolicyError(message, hint=hint, policy=name)
    return Verdict(str(answer))
