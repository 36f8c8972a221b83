"""Exit codes are total over the error tree, and never move."""

from __future__ import annotations

import click
import pytest

from plait import errors
from plait.cli.commands.explain import load_explanations
from plait.cli.exits import (
    EXITS,
    MEANING,
    CheckFailedError,
    Exit,
    RefusedError,
    exit_for,
    failure_of,
)

TREE = sorted(
    (
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type)
        and issubclass(kind, errors.TableError)
        and kind is not errors.TableError
    ),
    key=lambda kind: kind.__name__,
)


def test_every_error_has_an_exit_code_and_an_explanation_of_its_own():
    """No class falls through to "defect" because the table forgot it."""
    explanations = load_explanations()
    for kind in TREE:
        assert any(base in EXITS for base in kind.__mro__), kind
        for word in ("Cause.", "Table.", "Remedy."):
            assert word in explanations[kind.code], kind
    codes = [kind.code for kind in TREE]
    assert len(set(codes)) == len(codes)
    own = {"table", "usage", "refused", "wrong", "interrupted", "bug"}
    assert set(explanations) == {*codes, *own}


def test_exit_codes_are_the_documented_ones():
    """The numbers are an interface: scripts lean on them."""
    assert {code.name: code.value for code in Exit} == {
        "DONE": 0,
        "BUG": 1,
        "USAGE": 2,
        "NOT_FOUND": 3,
        "CONFLICT": 4,
        "LOCK": 5,
        "UNKNOWN": 6,
        "FORMAT": 7,
        "PROBLEMS": 8,
        "REFUSED": 9,
        "STORAGE": 10,
        "INTERRUPTED": 130,
    }
    assert set(MEANING) == set(Exit)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.TableNotFoundError, 3),
        (errors.InstantNotFoundError, 3),
        (errors.RetryableConflictError, 4),
        (errors.CommitRetriesExhaustedError, 4),
        (errors.LockTimeoutError, 5),
        (errors.CommitOutcomeUnknownError, 6),
        (errors.CorruptMetadataError, 7),
        (errors.UnsupportedFeatureError, 7),
        (errors.IllegalTransitionError, 9),
        (errors.CapabilityMissingError, 10),
        (errors.InvariantError, 1),
        (errors.OptionError, 2),
        (click.UsageError, 2),
        (RefusedError, 9),
        (CheckFailedError, 8),
        (KeyboardInterrupt, 130),
        (ZeroDivisionError, 1),
    ],
)
def test_exit_code_of_the_nearest_class_decides(kind, code):
    assert exit_for(kind) == code


def test_failure_keeps_code_hint_retry_and_facts_and_points_to_its_explanation():
    error = errors.RetryableConflictError("lost", hint="run it again", version=7)
    failure = failure_of(error)
    assert failure.to_dict() == {
        "error": "conflict_retryable",
        "type": "RetryableConflictError",
        "message": "lost",
        "hint": "run it again",
        "retry": "replan",
        "exit": 4,
        "facts": {"version": 7},
    }
    assert failure_of(errors.TableNotFoundError("gone")).hint == "tablectl explain not_found"
