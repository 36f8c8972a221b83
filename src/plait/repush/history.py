"""The versions of a source, each brought over as one version of the table (RFC 0048)."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from plait.errors import (
    BadRecordError,
    DuplicateKeyError,
    OptionError,
    RepushRefusedError,
    SchemaMismatchError,
)
from plait.model.consent import SOURCE, AllowedAddress, Consent
from plait.model.repush import DELTA, ICEBERG, RepushSource
from plait.repush.begin import RepushRequest
from plait.repush.delta import delta_history
from plait.repush.follow import changing_operations
from plait.repush.iceberg import iceberg_history
from plait.repush.parts import PiecedSource, SourceHistory, SourceVersion
from plait.repush.source import WantedSource, read_source
from plait.txn.table_handle import TableHandle
from plait.write.request import write_request
from plait.write.writer import Writer

_BEGIN = " version "


def find_history(wanted: WantedSource, allowed: AllowedAddress, consent: Consent) -> SourceHistory:
    """Look which versions of a source can be brought over.

    Raises:
        ConsentError, MissingDependencyError: as for one version.
        OptionError: a source of its kind has no versions, or the newest cannot be read.
    """
    address = wanted.address
    if address.kind == DELTA:
        return delta_history(allowed, wanted.options, consent)
    if address.kind == ICEBERG:
        return iceberg_history(allowed, wanted.options, consent)
    message = f"{address} has no history that can be brought over: only Delta and Iceberg have"
    raise OptionError(message, hint="leave history out", key="history", value=address.kind)


@dataclass(frozen=True, slots=True)
class HistoryImport:
    """An import of many versions into one table."""

    handle: TableHandle
    request: RepushRequest
    """What one version asks, under a commit id that each version makes longer."""
    consent: Consent

    def is_ours(self) -> bool:
        """Tell whether the table has a version of it, or is at one."""
        opened = self.handle.cache.refresh().table.repush
        began = opened is not None and str(opened.commit_id).startswith(self._prefix)
        return began or bool(self._brought())

    def run(
        self, history: SourceHistory, load: Callable[[TableHandle, RepushRequest], int]
    ) -> tuple[int, int]:
        """Bring over what is missing, oldest first; return how many versions, and rows.

        Each version is one decision under a commit id of its own, so a kill repeats none. A version
        that only adds files is appended; any other is loaded as a whole.

        Raises:
            OptionError: others changed rows of the table since, or what was brought over is no
                version of the source any more.
            RepushRefusedError: a row of a version cannot be in the table, or shares a key.
        """
        versions, rows = self._pending(history), 0
        before: PiecedSource | None = None
        for at, version in enumerate(versions):
            if version is history.versions[0]:
                rows += load(self.handle, self._request(version))
                continue
            self._require_untouched(version)
            earlier = history.versions[history.versions.index(version) - 1]
            before = before if at else None
            old = before or self._open(earlier)
            new = self._open(version)
            rows += self._bring(version, old, new, load)
            old.close()
            before = new
        if before is not None:
            before.close()
        return len(versions), rows

    @property
    def _prefix(self) -> str:
        return f"{self.request.commit_id}{_BEGIN}"

    def _request(self, version: SourceVersion) -> RepushRequest:
        source = self._source
        when = "" if version.time_ms is None else f" of {_iso(version.time_ms)}"
        commit_id = f"{self._prefix}{version.number}{when}"
        return replace(
            self.request, source=replace(source, version=version.number), commit_id=commit_id
        )

    @property
    def _source(self) -> WantedSource:
        if self.request.source is None:
            raise TypeError("an import has a source")
        return self.request.source

    def _open(self, version: SourceVersion) -> PiecedSource:
        source = self._source
        known = RepushSource(source.address, version.number, 0)
        found = read_source(
            source.address,
            self.consent.require(source.address.place, SOURCE, self.handle.store.address.uri),
            source.options,
            known,
            wanted=None,
            consent=self.consent,
        )
        if not isinstance(found, PiecedSource):
            raise TypeError(f"{source.address} has no files")
        return found

    def _brought(self) -> dict[int, int]:
        """Return the versions of the source that the table has, and in which of its own."""
        state = self.handle.cache.refresh()
        rows = state.commits(self.handle.store, columns=("version", "commit_id")).to_pylist()
        matches = [
            (re.match(r"-?\d+", row["commit_id"].removeprefix(self._prefix)), row["version"])
            for row in rows
            if (row["commit_id"] or "").startswith(self._prefix)
        ]
        return {int(match[0]): version for match, version in matches if match}

    def _pending(self, history: SourceHistory) -> Sequence[SourceVersion]:
        done = self._brought()
        if not done:
            return history.versions
        last = max(done, key=lambda number: done[number])
        numbers = [each.number for each in history.versions]
        if last not in numbers:
            message = (
                f"version {last} was the last to be brought over, and is none that can be read"
            )
            hint = "delete the target and begin anew: a version in between would be left out"
            raise OptionError(message, hint=hint, key="history", value=last)
        return history.versions[numbers.index(last) + 1 :]

    def _require_untouched(self, version: SourceVersion) -> None:
        """Refuse to replace rows of others."""
        last = max(self._brought().values(), default=-1)
        changed = changing_operations(self.handle.cache.known(), self.handle, last)
        if changed:
            names = ", ".join(sorted(changed))
            message = f"the target was changed since ({names}): version {version.number} of the "
            message += "source would replace its rows"
            hint = "write into the target once its history is complete; it stays as it is now"
            raise OptionError(message, hint=hint, key="history", value=version.number)

    def _bring(
        self,
        version: SourceVersion,
        old: PiecedSource,
        new: PiecedSource,
        load: Callable[[TableHandle, RepushRequest], int],
    ) -> int:
        request = self._request(version)
        opened = self.handle.cache.refresh().table.repush
        there, now = set(old.pieces), set(new.pieces)
        same = version.same_rows and old.rows == new.rows
        if opened is not None or not (same or there <= now):
            return load(self.handle, request)
        added = new.only(set() if same else now - there)
        spec = self.handle.cache.known().table.spec
        append = write_request("append", spec, commit_id=request.commit_id, on_conflict="retry")
        try:
            with Writer(self.handle, append) as writer:
                for part in added.parts(request.rows_per_task):
                    writer.write(part.read())  # type: ignore[arg-type]  # a reader
                    part.check()
        except (DuplicateKeyError, BadRecordError, SchemaMismatchError) as error:
            message = f"version {version.number} of {self._source.address} has a row that cannot "
            message += f"be in the table: {error.message}"
            raise RepushRefusedError(message, source=str(self._source.address)) from error
        return added.rows


def _iso(time_ms: int) -> str:
    when = dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(milliseconds=time_ms)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
