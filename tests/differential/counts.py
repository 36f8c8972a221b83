"""Counts what histories did, and says what none of them did."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from plait.errors import (
    ConflictError,
    DuplicateKeyError,
    RestoreRefusedError,
    RolledBackError,
    UndoneError,
)
from plait.testing.faults import SimulatedCrashError
from tests.differential.acts import AbortedError, Told
from tests.differential.draw import ISOLATIONS, POLICIES
from tests.differential.evidence import Evidence
from tests.differential.program import UNKEYED, WRITES, Block, Read, Write, name_of

TYPES = ("cow", "mor")
ODD = (
    "a named read",
    "a named read refused",
    "a read of an older version",
    "a transaction that read",
    "a duplicate key",
    "an aborted writer",
    "a crashed writer",
    "a writer that was rolled back",
    "a first result given again",
    "a retry",
    "a rebase",
    "a clean that ended versions",
    "an empty place",
    "a compaction",
    "a commit carried over a rewrite",
    "a rewrite carried over a commit",
    "a clustering",
    "an archive",
    "a savepoint",
    "a restore",
    "a restore refused",
    "a writer refused because of a restore",
    "a replay",
    "an undone commit id refused",
    "an undone epoch refused",
    "an epoch applied again",
    "a commit id applied again",
)
"""What must happen somewhere, whatever the policy."""
_SQUARES = tuple(itertools.product(POLICIES, ISOLATIONS))
_COLUMNS = ("operations", "committed", "refused")


@dataclass(slots=True)
class Counts:
    """What many histories came to."""

    histories: int = 0
    versions: int = 0
    seconds: float = 0.0
    by: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """(what, operation, policy, isolation, keyed) and so on -> how often."""
    odd: Counter[str] = field(default_factory=Counter)

    def add(self, evidence: Evidence) -> None:
        """Count one history."""
        self.histories += 1
        self.versions += len(evidence.versions) - evidence.first
        self.odd["a clean that ended versions"] += evidence.expired > 0
        self.odd["an empty place"] += not evidence.history.start
        self._undone(evidence)
        for version in evidence.versions:
            rewrites = version.operation in ("compact", "cluster")
            self.odd["a compaction"] += version.operation == "compact"
            self.odd["a commit carried over a rewrite"] += version.carried and not rewrites
            self.odd["a rewrite carried over a commit"] += version.carried and rewrites
        for told in evidence.told:
            self._turn(evidence, told)

    def _undone(self, evidence: Evidence) -> None:
        kinds = Counter(version.operation for version in evidence.versions)
        self.odd["a clustering"] += kinds["cluster"]
        self.odd["an archive"] += kinds["archive"]
        self.odd["a savepoint"] += kinds["savepoint"]
        self.odd["a restore"] += kinds["restore"]
        self.odd["a replay"] += any(v.allowed or v.back is not None for v in evidence.versions)
        epochs = Counter(v.epoch for v in evidence.versions if v.epoch is not None)
        ids = Counter(v.commit_id for v in evidence.versions if v.commit_id is not None)
        self.odd["an epoch applied again"] += max(epochs.values(), default=0) > 1
        self.odd["a commit id applied again"] += max(ids.values(), default=0) > 1

    def _turn(self, evidence: Evidence, told: Told) -> None:
        shape, name = evidence.history.shape, name_of(told.turn)
        what = ["operations"]
        if told.result is not None:
            what.append("committed")
        if isinstance(told.error, ConflictError):
            what.append("refused")
        for each in what:
            self.by[each, name, shape.policy, shape.isolation] += 1
            self.by[each, name, shape.table_type, "keyed" if shape.keyed else "no key"] += 1
        self.odd.update(_odd(evidence, told))

    def missing(self) -> list[str]:
        """Name what never happened, though the check rests on it."""
        found = [
            f"no {name} was committed under {policy}, {isolation}"
            for name in (*WRITES, "block")
            for policy, isolation in _SQUARES
            if not self.by["committed", name, policy, isolation]
        ]
        found += [
            f"no {name} was committed in a {kind} table ({key})"
            for key, names in (("keyed", WRITES), ("no key", UNKEYED))
            for name in (*names, "block")
            for kind in TYPES
            if not self.by["committed", name, kind, key]
        ]
        found += [
            f"nothing was refused under {policy}, {isolation}"
            for policy, isolation in _SQUARES
            if not sum(self.by["refused", n, policy, isolation] for n in (*WRITES, "block"))
        ]
        return found + [f"there was never {name}" for name in ODD if not self.odd[name]]

    def __str__(self) -> str:
        each_ms = 1000 * self.seconds / max(1, self.histories)
        cells = [f"{policy}, {isolation[:8]}" for policy, isolation in _SQUARES]
        lines = [
            f"{self.histories} histories, {self._sum('operations')} operations, ",
            f"{self._sum('committed')} commits, {self._sum('refused')} conflicts, ",
            f"{self.versions} versions, {self.seconds:.1f} s, {each_ms:.1f} ms each\n\n",
            f"{'operations/commits/conflicts':28}" + "".join(f"{cell:>24}" for cell in cells),
        ]
        lines = ["".join(lines)]
        for name in sorted({key[1] for key in self.by}):
            cells = [self._cell(name, *square) for square in _SQUARES]
            lines.append(f"{name:28}" + "".join(f"{cell:>24}" for cell in cells))
        lines += ["", *(f"{self.odd[name]:8}  {name}" for name in ODD)]
        return "\n".join(lines)

    def _cell(self, name: str, policy: str, isolation: str) -> str:
        return "/".join(str(self.by[what, name, policy, isolation]) for what in _COLUMNS)

    def _sum(self, what: str) -> int:
        return sum(n for key, n in self.by.items() if key[0] == what and key[2] in POLICIES)


def _odd(evidence: Evidence, told: Told) -> Iterator[str]:
    turn, result = told.turn, told.result
    named = isinstance(turn, Write) and turn.read is not False and bool(told.saw)
    if named:
        yield "a named read"
        if isinstance(told.error, ConflictError):
            yield "a named read refused"
    older = isinstance(turn, Read) and turn.back
    if older or (isinstance(turn, Write) and turn.named == "older" and named):
        yield "a read of an older version"
    if isinstance(turn, Block) and told.saw and result is not None:
        yield "a transaction that read"
    kinds: dict[str, type[BaseException]] = {
        "a duplicate key": DuplicateKeyError,
        "an aborted writer": AbortedError,
        "a crashed writer": SimulatedCrashError,
        "a writer that was rolled back": RolledBackError,
        "a restore refused": RestoreRefusedError,
    }
    yield from (name for name, kind in kinds.items() if isinstance(told.error, kind))
    if isinstance(told.error, UndoneError):
        epoch = isinstance(turn, Write) and turn.epoch is not None
        yield "an undone epoch refused" if epoch else "an undone commit id refused"
    if isinstance(told.error, ConflictError):
        theirs = int(str(told.error.facts["version"]))
        if theirs < len(evidence.versions) and evidence.versions[theirs].restored is not None:
            yield "a writer refused because of a restore"
    if result is None:
        return
    if result.rebased:
        yield "a rebase"
        if isinstance(turn, (Write, Block)) and turn.retry:
            yield "a retry"
    first = evidence.versions[result.version] if result.version < len(evidence.versions) else None
    if first is not None and not first.of(told, evidence.prefixes[told.client]):
        yield "a first result given again"
