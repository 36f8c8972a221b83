"""Judges what restores undo, and what may be applied again: INV-09, INV-16, RFC 0018."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from plait.errors import (
    EpochRewoundError,
    EpochUnknownError,
    InstantNotFoundError,
    RepushRefusedError,
    RestoreRefusedError,
    UndoneError,
)
from tests.differential.acts import Told
from tests.differential.evidence import Version
from tests.differential.lineage import Lineage
from tests.differential.model import Rows
from tests.differential.program import Serve, Write
from tests.differential.serve import Allowed, Undid
from tests.scheduler import Problem

NATURAL = (UndoneError, EpochUnknownError, EpochRewoundError, RestoreRefusedError)
MARKS = ("restore", "replay", "repush", "schema")
"""They change the table although they are no commits of rows: a restore must have seen them."""
Window = Iterable[int]


class Undone:
    """The part of the judge that knows the lineage."""

    def __init__(
        self,
        versions: Sequence[Version],
        states: Sequence[Rows],
        by: dict[int, Told],
        writes: Callable[[Version], bool],
    ) -> None:
        self.versions, self.states, self.by = versions, states, by
        self.writes = writes
        self.lineage = Lineage(versions)

    # --- what was decided --------------------------------------------------------------------

    def decided(self, version: Version) -> Iterator[Problem]:
        """Judge one version, by the versions before it."""
        if version.restored is not None:
            yield from self._restore(version, version.restored)
        elif version.operation == "replay":
            lost = self.lineage.is_lost(version.number - 1)
            back = self.lineage.last_epoch(version.number - 1) if lost else None
            ids = self.lineage.undone_ids(version.number - 1)
            yield from self._allowed(version, ids, back)
        if not self.writes(version):
            return
        yield from self._applied_once(version)
        began = range(version.began + 1, version.number)
        restores = [n for n in began if self.versions[n].restored is not None]
        if restores and version.number in self.by:
            found = f"version {version.number} was begun before the restore {restores[0]}"
            yield Problem("writers meet a restore", found)

    def _restore(self, version: Version, to: int) -> Iterator[Problem]:
        number = version.number
        before, after = self.states[number], self.states[to]
        if before != after:
            more, less = before.items() - after.items(), after.items() - before.items()
            found = f"version {number}, of version {to}, has {more} too much and lacks {less}"
            yield Problem("restore", found)
        kept, had = self.lineage.contained(to), self.lineage.contained(number - 1)
        undone, returned = self._commits(had - kept), self._commits(kept - had)
        told = self.by.get(number)
        served = None if told is None else told.served
        if told is not None and isinstance(served, Undid):
            if (served.version, served.undone, served.returned) != (number, undone, returned):
                found = f"{served} of version {number}, which undoes {undone}, returns {returned}"
                yield Problem("restore told", found)
            unseen = [n for n in range(served.shown + 1, number) if self._matters(n)]
            if unseen:
                found = f"version {number} undoes {unseen}, which its plan did not show"
                yield Problem("restore shown", found)
        asked = told is not None and isinstance(told.turn, Serve) and told.turn.replay
        ids: tuple[str, ...] = ()
        back = None
        if asked:
            ids = self.lineage.undone_ids(number - 1, kept)
            _, at = self.lineage.position(number - 1)
            lost = at is not None and at not in kept
            back = self.lineage.last_epoch(to) if lost else None
        yield from self._allowed(version, ids, back)

    def _allowed(
        self, version: Version, ids: tuple[str, ...], back: int | None
    ) -> Iterator[Problem]:
        found = tuple(sorted(version.allowed)), version.back
        if found != (ids, back):
            yield Problem("replay", f"version {version.number} allows {found}, not {(ids, back)}")

    def _applied_once(self, version: Version) -> Iterator[Problem]:
        number, name, epoch = version.number, version.commit_id, version.epoch
        kept = self.lineage.contained(number - 1)
        if name is not None:
            earlier = self.lineage.of_commit_id(name, number - 1)
            if kept.intersection(earlier):
                found = f"{name!r} was applied in versions {earlier}, and again in {number}"
                yield Problem("commit id", found)
            elif self.lineage.is_undone(name, number - 1):
                yield Problem("INV-16", f"{name!r} was undone, and applied in version {number}")
        if epoch is None:
            return
        last, _ = self.lineage.position(number - 1)
        if self.lineage.is_lost(number - 1):
            found = f"version {number} applied epoch {epoch}, and the position was undone"
            yield Problem("INV-16", found)
        elif epoch != last + 1:
            yield Problem("INV-09", f"version {number} applied epoch {epoch} after {last}")

    # --- what was told -----------------------------------------------------------------------

    def told(self, told: Told, window: Window) -> Iterator[Problem]:
        """Judge what a client was told while these versions were the head."""
        heads = list(window)
        turn, served, result = told.turn, told.served, told.result
        what = f"{told.client}'s {turn!r}"
        if isinstance(served, Undid) and served.version is None:
            if not any(self._as_wanted(head, served.to) for head in heads):
                yield Problem("restore told", f"{what} was told that nothing is to be undone")
        elif isinstance(served, Undid) and self.by.get(served.version or 0) is not told:
            yield Problem("INV-10", f"{what} was told version {served.version}, not its own")
        if isinstance(served, Undid) and getattr(turn, "kind", "") == "undo":
            commits = self._commits(self.lineage.contained(served.shown))
            if not commits or served.to != commits[-1] - 1:
                yield Problem("restore told", f"{what} restored {served.to}, of {commits}")
        if isinstance(served, Allowed):
            yield from self._told_replay(told, served, heads, what)
        known = result is not None and result.version < len(self.versions)
        version = self.versions[result.version] if result is not None and known else None
        if version is None or not self.is_first_result(told, version):
            return
        if not any(version.number in self.lineage.contained(head) for head in heads):
            found = f"{what} was told version {version.number}, which a restore undid"
            yield Problem("INV-16", found)

    def _told_replay(
        self, told: Told, served: Allowed, heads: list[int], what: str
    ) -> Iterator[Problem]:
        if served.version is None:
            lineage = self.lineage
            if all(lineage.undone_ids(head) or lineage.is_lost(head) for head in heads):
                yield Problem("replay", f"{what} was told that there is nothing to replay")
            return
        version = self.versions[served.version]
        allowed = tuple(sorted(version.allowed)), version.back
        if self.by.get(served.version) is not told:
            yield Problem("INV-10", f"{what} was told version {served.version}, not its own")
        elif (tuple(sorted(served.commit_ids)), served.back) != allowed:
            yield Problem("replay", f"{what} was told {served}, and it allows {allowed}")

    def is_first_result(self, told: Told, version: Version) -> bool:
        """Tell whether a result is that of another with the same commit id or epoch."""
        turn = told.turn
        name, epoch = getattr(turn, "commit_id", None), getattr(turn, "epoch", None)
        same = (name is not None and version.commit_id == name) or (
            epoch is not None and version.epoch == epoch
        )
        return same and self.by.get(version.number) is not told

    # --- what was raised ---------------------------------------------------------------------

    def is_natural(self, told: Told, error: BaseException, window: Window) -> bool:
        """Tell whether a client may meet one of ``NATURAL`` while these versions are the head."""
        heads = list(window)
        if isinstance(error, RestoreRefusedError):
            planned, named = error.facts["planned"], error.facts["versions"]
            assert isinstance(planned, int)
            assert isinstance(named, list)
            return bool(named) and all(n > planned and self._matters(n) for n in named)
        turn = told.turn
        if isinstance(error, UndoneError) and getattr(turn, "commit_id", None) is not None:
            name = str(getattr(turn, "commit_id", ""))
            return any(
                self.lineage.is_undone(name, head) or name in self.versions[head].allowed
                for head in heads  # undone and let through at once, while it was at work
            )
        if not isinstance(turn, Write) or turn.epoch is None:
            return False
        epoch = turn.epoch
        if isinstance(error, EpochUnknownError):
            return any(
                not self.lineage.is_lost(head) and epoch > self.lineage.position(head)[0] + 1
                for head in heads
            )
        if isinstance(error, EpochRewoundError):
            return any(self._has_others(epoch, turn, head) for head in heads)
        return any(self._is_epoch_undone(epoch, head) for head in heads) or any(
            self.versions[head].back is not None and self.versions[head].restored is not None
            for head in heads  # undone and let through at once, while its rows were compared
        )

    def _is_epoch_undone(self, epoch: int, head: int) -> bool:
        applied = self.lineage.of_epoch(epoch, head)
        kept = bool(self.lineage.contained(head).intersection(applied))
        return not kept and (self.lineage.is_lost(head) or bool(applied))

    def _has_others(self, epoch: int, turn: Write, head: int) -> bool:
        """Tell whether the table contains an epoch with other rows."""
        applied = self.lineage.of_epoch(epoch, head)
        kept = [n for n in applied if n in self.lineage.contained(head)]
        turns = [self.by[n].turn for n in kept if n in self.by]
        return any(isinstance(each, Write) and each.do.rows != turn.do.rows for each in turns)

    def is_natural_of_service(self, told: Told, error: BaseException, window: Window) -> bool:
        """Tell whether a service may end so: what is not found is not there, and so on."""
        kind = getattr(told.turn, "kind", "")
        if isinstance(error, RepushRefusedError) and "found" in error.facts:
            # Rows may become one where another layout gives them one key; they never become more.
            return int(str(error.facts["found"])) < int(str(error.facts["rows"]))
        if not isinstance(error, InstantNotFoundError) or kind not in ("undo", "saved", "restore"):
            return True
        heads = list(window)
        if kind == "undo":
            return any(not self._commits(self.lineage.contained(head)) for head in heads)
        saved = [v.number for v in self.versions if v.saved is not None]
        return kind == "saved" and heads[0] < min(saved, default=len(self.versions))

    # --- small answers -----------------------------------------------------------------------

    def _commits(self, numbers: Iterable[int]) -> tuple[int, ...]:
        return tuple(sorted(n for n in numbers if self.writes(self.versions[n])))

    def _matters(self, number: int) -> bool:
        version = self.versions[number]
        return self.writes(version) or version.operation in MARKS

    def _as_wanted(self, head: int, to: int) -> bool:
        """Tell whether a table has the rows of a version, and nothing to be undone since."""
        if to > head:
            return False
        between = self.lineage.contained(head) ^ self.lineage.contained(to)
        return self.states[head] == self.states[to] and not any(map(self._matters, between))
