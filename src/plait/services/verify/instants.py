"""Check that each instant, time and commit id is decided at most once (INV-03)."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import xxhash

from plait.model.decision import Decision
from plait.services.verify.report import Findings
from plait.timeline import paths

Numbers = npt.NDArray[np.uint64]


@dataclass(slots=True)
class _Unique:
    """A 64-bit value and a version for each entry: 16 bytes a decision."""

    values: array[int] = field(default_factory=lambda: array("Q"))
    versions: array[int] = field(default_factory=lambda: array("Q"))

    def add(self, value: int, version: int) -> None:
        self.values.append(value)
        self.versions.append(version)

    def numbers(self) -> tuple[Numbers, Numbers]:
        return np.array(self.values, np.uint64), np.array(self.versions, np.uint64)

    def repeated(self) -> Iterator[tuple[int, int]]:
        """Return (version, first version) of each entry whose value was there before."""
        values, versions = self.numbers()
        order = np.lexsort((versions, values))
        values, versions = values[order], versions[order]
        start = 0
        for at in np.flatnonzero(values[1:] == values[:-1]) + 1:
            if at == 1 or values[at - 2] != values[at]:
                start = int(at) - 1
            yield int(versions[at]), int(versions[start])


@dataclass(slots=True)
class Instants:
    """Collects what identifies decisions; judges at the end."""

    committed: _Unique = field(default_factory=_Unique)
    ended: _Unique = field(default_factory=_Unique)
    _times: _Unique = field(default_factory=_Unique)
    _commit_ids: _Unique = field(default_factory=_Unique)
    _replays: Counter[str] = field(default_factory=Counter)
    """How often each commit id was let through again."""
    _completed_ms: int = -1
    _version: int = -1

    def take(self, decision: Decision, findings: Findings) -> None:
        """Take the next decision."""
        version = decision.version
        self.committed.add(int(decision.instant.nonce, 16), version)
        self._times.add(int(decision.instant.time), version)
        if decision.replayed is not None:
            self._replays.update(decision.replayed.commit_ids)
        for ended in decision.rolled_back:
            self.ended.add(int(ended.instant.nonce, 16), version)
        if decision.commit_id is not None:
            self._commit_ids.add(self._number(decision.commit_id), version)
        if version == self._version + 1 and decision.completed_ms <= self._completed_ms:
            message = f"it completed no later than version {version - 1}"
            findings.problem("INV-03", paths.slot(version), message)
        self._completed_ms, self._version = decision.completed_ms, version

    def _number(self, commit_id: str) -> int:
        """Return a number for a commit id; another one after each replay that names it."""
        text = f"{self._replays[commit_id]}/{commit_id}" if self._replays else f"0/{commit_id}"
        return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))

    def judge(self, findings: Findings) -> None:
        """Report everything that was decided twice."""
        checks = {
            "its instant is decided by version {} already": self.committed,
            "an instant that it ends was ended by version {} already": self.ended,
            "its instant time was completed by version {} already": self._times,
            "its commit id was committed by version {} already": self._commit_ids,
        }
        for message, column in checks.items():
            for version, first in column.repeated():
                findings.problem("INV-03", paths.slot(version), message.format(first))
        for version, other in self._both():
            message = f"its instant is both committed and rolled back: see version {other}"
            findings.problem("INV-03", paths.slot(version), message)

    def _both(self) -> Iterator[tuple[int, int]]:
        """Give the later and the earlier version of what was committed and rolled back."""
        nonces, versions = self.committed.numbers()
        ended, ended_at = self.ended.numbers()
        _, at, also_at = np.intersect1d(nonces, ended, return_indices=True)
        for one, other in zip(versions[at], ended_at[also_at], strict=True):
            yield int(max(one, other)), int(min(one, other))
