"""What every conflict policy must do. Subclass it and provide the fixture ``policy``: the function.

The kit asks about every possible meeting, so a policy that passes is not refused in a commit. Your
table may have other partitions than the kit; name some in ``places``.
"""

# Tests: their names say what is promised, and their asserts are the point.
# ruff: noqa: S101, D102

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import ClassVar, Self

from plait.definition.policy import ALLOWED, Verdict, require_policy
from plait.model.bucket import Partition
from plait.model.contract import APART, KEYS, SAME, UNKNOWN, Meeting, Rule
from plait.txn.matrix import KINDS, Kind

_OPERATIONS = tuple(operation.value for operation, kind in KINDS.items() if kind is Kind.ROWS)
_OUTSIDE = ("open", "os.", "socket.", "subprocess.", "ctypes.", "shutil.", "tempfile.")


class PolicyKit:
    """The rules that a conflict policy must obey."""

    name: ClassVar[str | None] = None
    """The name of its entry point in ``plait.policies``; None: do not check it."""
    symmetric: ClassVar[bool] = False
    """Whether the answer stays the same if ours and theirs are exchanged."""
    places: ClassVar[Iterable[Partition]] = ((), ("2026-01-01",), (None,), ("a", "b"))
    """Partitions to ask about, as texts."""

    @classmethod
    def check(cls, policy: Rule) -> None:
        """Check every rule at once, without pytest; raise AssertionError for a broken one.

        >>> PolicyKit.check(lambda meeting: "retry")
        """
        kit = cls()
        for name in sorted(dir(cls)):
            if name.startswith("test_"):
                getattr(kit, name)(policy)

    def meetings(self) -> Iterator[Meeting]:
        """Return every meeting of two operations, in every place."""
        sides = itertools.product(_OPERATIONS, _OPERATIONS, KEYS, (False, True))
        for (ours, theirs, keys, computed), place in itertools.product(sides, self.places):
            for bucket in (0, 7):
                yield Meeting(ours, theirs, keys, computed, place, bucket)

    def test_it_answers_every_meeting_with_a_verdict_that_it_may_give(self, policy: Rule) -> None:
        wrong = [(m, policy(m)) for m in self.meetings() if policy(m) not in ALLOWED]
        assert wrong[:3] == [], f"a policy returns one of {', '.join(ALLOWED)}"

    def test_it_answers_the_same_in_every_order_and_in_every_thread(self, policy: Rule) -> None:
        first = {meeting: policy(meeting) for meeting in self.meetings()}
        again: dict[Meeting, str] = {}

        def ask() -> None:
            again.update({m: policy(m) for m in reversed(list(first))})

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        differ = [meeting for meeting in first if first[meeting] != again.get(meeting)]
        assert differ[:3] == [], "a policy is a function of the meeting, and of nothing else"

    def test_it_touches_no_file_and_no_network(self, policy: Rule) -> None:
        """What it finds there would differ between clients."""
        for meeting in self.meetings():
            policy(meeting)  # whatever it imports, it may import once
        with _Listening() as heard:
            for meeting in self.meetings():
                policy(meeting)
        assert sorted(set(heard.events)) == []

    def test_it_is_as_strict_as_can_be_where_nobody_can_tell(self, policy: Rule) -> None:
        """With unknown keys, the other commit may have written the same key."""
        rank = list(ALLOWED).index
        for meeting in self.meetings():
            if meeting.keys == UNKNOWN:
                least = max(rank(_of(policy, meeting, keys)) for keys in (APART, SAME))
                assert rank(_of(policy, meeting, UNKNOWN)) >= least, meeting

    def test_it_is_symmetric_where_it_promises_so(self, policy: Rule) -> None:
        for meeting in self.meetings() if self.symmetric else ():
            swapped = replace(meeting, ours=meeting.theirs, theirs=meeting.ours)
            assert policy(meeting) == policy(swapped), meeting

    def test_it_is_found_by_its_name(self, policy: Rule) -> None:
        if self.name is not None:
            assert require_policy(self.name) is policy


def _of(policy: Rule, meeting: Meeting, keys: str) -> Verdict:
    return Verdict(policy(replace(meeting, keys=keys)))


class _Listening:
    """Records calls of this thread to the system; interpreter hooks cannot be removed."""

    _here = threading.local()
    _hooked = False

    def __init__(self) -> None:
        self.events: list[str] = []

    def __enter__(self) -> Self:
        if not _Listening._hooked:
            _Listening._hooked = True
            sys.addaudithook(_Listening._hear)
        self._here.heard = self.events
        return self

    def __exit__(self, *error: object) -> None:
        self._here.heard = None

    @staticmethod
    def _hear(event: str, _arguments: tuple[object, ...]) -> None:
        heard = getattr(_Listening._here, "heard", None)
        if heard is not None and event.startswith(_OUTSIDE):
            heard.append(event)
