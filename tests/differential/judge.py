"""Compares what a history showed with what the same operations mean one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from plait.errors import (
    CommitOutcomeUnknownError,
    CommitRetriesExhaustedError,
    ConflictError,
    DuplicateKeyError,
    InstantExpiredError,
    TableError,
)
from plait.testing.faults import SimulatedCrashError
from tests.differential.acts import AbortedError, Told
from tests.differential.evidence import Change, Evidence, Version
from tests.differential.model import DuplicateError, Ident, Ran, Rows, Saw, ident, run, shown
from tests.differential.program import Block, Do, History, Row, Serve, Write, expires
from tests.differential.refusals import RESHAPES, Refusals
from tests.differential.undone import NATURAL, Undone
from tests.scheduler import Problem

SERVICES = (
    "archive",
    "begin-repush",
    "cancel-repush",
    "clean",
    "cluster",
    "compact",
    "create",
    "expire",
    "property",
    "rebuild",
    "replay",
    "repush",
    "reserve",
    "restore",
    "rollback",
    "savepoint",
    "schema",
)
"""They are no commits of rows. Of them, a restore and an expiry alone change what is visible."""
LATE = (CommitOutcomeUnknownError, SimulatedCrashError)
"""After these nobody knows, and both may have happened."""


def judge(evidence: Evidence) -> list[Problem]:
    """Give every difference between what was seen and what should have been."""
    return list(_Judge(evidence).findings())


class _Judge:
    def __init__(self, evidence: Evidence) -> None:
        self.seen = evidence
        self.history: History = evidence.history
        self.shape = evidence.history.shape
        self.versions = evidence.versions
        self.head = self.versions[-1].number
        self.states: list[Rows] = [
            {ident(self.shape, row): row for row in version.rows} for version in self.versions
        ]
        self.by: dict[int, Told] = {
            version.number: told
            for version in self.versions
            for told in evidence.told
            if version.of(told, evidence.prefixes[told.client])
        }
        self.undone = Undone(self.versions, self.states, self.by, self._writes)
        self.refusals = Refusals(self.shape, self.versions, self.states, self.by)

    def findings(self) -> Iterator[Problem]:
        if self.seen.damage:
            yield from (Problem("damage", each) for each in self.seen.damage)
            return
        yield from self._dense()
        for version in self.versions:
            yield from self._version(version)
        yield from self._feed()
        yield from self._written()
        yield from self._published()
        for told in self.seen.told:
            yield from self._reads(told)
            yield from self._told(told)
            yield from self.undone.told(told, self._heads(told))
            yield from self._error(told)

    # --- what is there -----------------------------------------------------------------------

    def _dense(self) -> Iterator[Problem]:
        numbers = [version.number for version in self.versions]
        if numbers != list(range(len(numbers))):
            yield Problem("INV-02", f"versions are {numbers}")
        times = Counter(version.time for version in self.versions)
        for time in (time for time, count in times.items() if count > 1):
            yield Problem("INV-03", f"the instant {time} was decided {times[time]} times")
        checksums = [version.checksum for version in self.versions]
        if self.seen.decided != checksums:
            found = f"{len(self.seen.decided)} of {len(checksums)} decisions"
            yield Problem("INV-01", f"at the end others are read than were published: {found}")

    def _version(self, version: Version) -> Iterator[Problem]:
        number = version.number
        if len(self.states[number]) != len(version.rows):
            yield Problem("INV-08", f"version {number} has a row twice: {version.rows}")
        later = self.seen.later.get(number)
        if later is not None and later != version.rows:
            yield Problem("time travel", f"version {number} was {version.rows}, later {later}")
        if later is None and number >= self.seen.first and not self._may_be_cleaned(number):
            yield Problem("time travel", f"version {number} of {self.head} cannot be read")
        yield from self.undone.decided(version)
        told = self.by.get(number)
        if self._writes(version):
            if told is not None:
                yield from self._commit(version, told)
        elif version.operation == "expire":
            gone = self.states[number - 1].items() - self.states[number].items()
            more = self.states[number].items() - self.states[number - 1].items()
            if not gone or more or not all(expires(row) for _, row in gone):
                found = f"version {number}, an expiry, took {gone} and brought {more}"
                yield Problem("expiry", found)
        elif version.operation == "restore":
            return
        elif number and self.states[number] != self.states[number - 1]:
            yield Problem("INV-10", f"version {number}, a {version.operation}, changed rows")

    def _may_be_cleaned(self, number: int) -> bool:
        cleans = self.shape.little and self.history.serves("clean")
        saved = any(version.saved == number for version in self.versions)
        return cleans and number < self.head - 1 and not saved

    def _writes(self, version: Version) -> bool:
        return version.operation not in SERVICES

    def _feed(self) -> Iterator[Problem]:
        """The change feed replays to the table, and names each change as what it is."""
        fed: dict[int, list[Change]] = {}
        for change in self.seen.changes:
            fed.setdefault(change.version, []).append(change)
        for number in range(self.seen.expired + 1, self.head + 1):
            got = Counter((each.kind, each.row) for each in fed.get(number, ()))
            wanted = Counter(self._changed(self.states[number - 1], self.states[number]))
            if got != wanted:
                missing, extra = dict(wanted - got), dict(got - wanted)
                found = f"version {number}: lacks {missing}, has {extra} too much"
                yield Problem("change feed", found)

    def _written(self) -> Iterator[Problem]:
        """No row is older than it is, and none was written by what writes no row."""
        if any(version.restored is not None for version in self.versions):
            return
        for row, by in self.seen.written:
            at, since = ident(self.shape, row), self.head
            while since and self.states[since - 1].get(at) == row:
                since -= 1
            moved = by > since and not self._writes(self.versions[by])
            if not since <= by <= self.head or moved:
                found = f"row {row}, there since version {since}, was written by version {by}"
                yield Problem("RFC 0023", found)

    def _published(self) -> Iterator[Problem]:
        """Who reads another format sees the rows of a version, and the newest if all went well."""
        newest = dict.fromkeys(("_delta_log", "metadata") if self.shape.published else (), -1)
        for name, number, rows in self.seen.published:
            if number > self.head or rows != self.versions[number].rows:
                yield Problem("INV-17", f"{name} shows {rows} as version {number} of {self.head}")
            directory = name.partition("/")[0]
            newest[directory] = max(number, newest[directory])
        for directory, number in newest.items():
            if number < self.head and self.head >= self.seen.first and not self.seen.hurt:
                found = f"{directory} ends with version {number} of {self.head}"
                yield Problem("what is decided is published", found)

    def _changed(self, old: Rows, new: Rows) -> Iterator[tuple[str, Row]]:
        for at in old.keys() | new.keys():
            before, after = old.get(at), new.get(at)
            if before == after:
                continue
            both = before is not None and after is not None and self.shape.keyed
            if before is not None:
                yield "update_preimage" if both else "delete", before
            if after is not None:
                yield "update_postimage" if both else "insert", after

    # --- what was committed --------------------------------------------------------------------

    def _commit(self, version: Version, told: Told) -> Iterator[Problem]:
        number = version.number
        what = f"version {number}, {told.client}'s {told.turn!r}"
        if told.error is not None and not isinstance(told.error, LATE):
            yield Problem("INV-10", f"{what}, was told {told.error!r}")
            return
        if number <= told.began:
            yield Problem("INV-10", f"{what}, was begun after version {told.began}")
            return
        if not self.shape.strict:
            yield from self._snapshot(told, version, what)
        elif not self._serial(told, number):
            yield Problem("serial order", f"{what}: {self._expected(told, number)}")
        yield from self._first_wins(told, version, what)

    def _window(self, told: Told) -> range:
        """Where an operation that changed nothing, or failed, may stand."""
        low = told.began if told.read_at is None else min(told.began, told.read_at)
        return range(low, (self.head if told.ended < 0 else told.ended) + 1)

    def _heads(self, told: Told) -> range:
        """The versions that were the head while a turn went on."""
        return range(told.began, (self.head if told.ended < 0 else told.ended) + 1)

    def _serial(self, told: Told, number: int) -> bool:
        """Whether the operation did at its version what it does alone."""
        if self._matches(told, number - 1, self.states[number]):
            return True
        if self.states[number] != self.states[number - 1]:
            return False
        return any(self._matches(told, at, self.states[at]) for at in self._window(told))

    def _matches(self, told: Told, at: int, after: Rows) -> bool:
        ran = self._run(told, self.states[at])
        if not isinstance(ran, Ran) or ran.rows != after:
            return False
        if ran.saw != [saw.rows for saw in told.saw]:
            return False
        return told.result is None or _counts(told) == ran.counts

    def _run(self, told: Told, rows: Rows) -> Ran | DuplicateError:
        try:
            return run(self.shape, rows, told.steps)
        except DuplicateError as error:
            return error

    def _expected(self, told: Told, number: int) -> str:
        before, after = self.states[number - 1], self.states[number]
        ran = self._run(told, before)
        alone = (
            f"raises a duplicate of {ran.keys}"
            if isinstance(ran, DuplicateError)
            else (f"leaves {shown(ran.rows, None)}, counts {ran.counts}, sees {ran.saw}")
        )
        saw = [saw.rows for saw in told.saw]
        counts = None if told.result is None else _counts(told)
        return (
            f"on {shown(before, None)} it {alone}; "
            f"it left {shown(after, None)}, counted {counts}, saw {saw}"
        )

    def _snapshot(self, told: Told, version: Version, what: str) -> Iterator[Problem]:
        """Every row is as the operation makes it, on the version before or since it began."""
        number = version.number
        if self._matches_rows(told, number):
            return
        before, after = self.states[number - 1], self.states[number]
        low = told.began if told.base is None else told.base
        ended = [w for w in range(low + 1, number) if self.versions[w].operation == "expire"]

        def left_over(at: Ident) -> bool:
            return any(at in self.states[w - 1] and at not in self.states[w] for w in ended)

        for at in self._touchable(told, range(low, number + 1)):
            if after.get(at) in self._alone(told, at, number - 1):
                continue
            left = any(
                self.states[w].get(at) in self._alone(told, at, w) for w in range(low, number)
            )
            if after.get(at) == before.get(at) and left:
                continue
            if left_over(at) and any(
                after.get(at) in self._alone(told, at, w) and any(self._count(told, at, w))
                for w in range(low, number)
            ):
                continue  # a row that was read and expired since counts as read before
            found = f"row {at} is {after.get(at)}: {self._expected(told, number)}"
            yield Problem("snapshot effect", f"{what}: {found}")
        yield from self._bounds(told, range(low, number), what)

    def _matches_rows(self, told: Told, number: int) -> bool:
        ran = self._run(told, self.states[number - 1])
        if not isinstance(ran, Ran) or ran.rows != self.states[number]:
            return False
        return told.result is None or _counts(told) == ran.counts

    def _alone(self, told: Told, at: Ident, version: int) -> tuple[Row | None, ...]:
        """What becomes of one row, as if it were the only one; nothing if that is refused."""
        row = self.states[version].get(at)
        ran = self._run(told, {} if row is None else {at: row})
        return () if isinstance(ran, DuplicateError) else (ran.rows.get(at),)

    def _bounds(self, told: Told, window: range, what: str) -> Iterator[Problem]:
        """Counts lie between those of each row, on any version since it began."""
        if told.result is None:
            return
        low, high = [0, 0, 0], [0, 0, 0]
        for at in self._touchable(told, window):
            each = [self._count(told, at, version) for version in window]
            for kind in range(3):
                low[kind] += min(counts[kind] for counts in each)
                high[kind] += max(counts[kind] for counts in each)
        got = _counts(told)
        if not all(a <= b <= c for a, b, c in zip(low, got, high, strict=True)):
            yield Problem("snapshot counts", f"{what}: {got}, not in {low} to {high}")

    def _count(self, told: Told, at: Ident, version: int) -> tuple[int, int, int]:
        row = self.states[version].get(at)
        ran = self._run(told, {} if row is None else {at: row})
        if isinstance(ran, DuplicateError):
            return 0, 0, 0
        kinds = [kind for kind, who in ran.events if who == at]
        return kinds.count("inserted"), kinds.count("updated"), kinds.count("deleted")

    def _touchable(self, told: Told, window: Iterable[int]) -> set[Ident]:
        found = {ident(self.shape, row) for do in told.did for row in do.rows}
        return found.union(*(self.states[version] for version in window))

    def _first_wins(self, told: Told, version: Version, what: str) -> Iterator[Problem]:
        """Whoever was first stands: no row was changed since it was read, or begun with."""
        number, read_at = version.number, told.read_at
        before, after = self.states[number - 1], self.states[number]
        mine = {at for at in before.keys() | after.keys() if before.get(at) != after.get(at)}
        if read_at is not None:
            named = mine | self._named(told, range(read_at, number))
            for at, by in self._changed_by_others(named, read_at, number):
                found = f"row {at}, read at version {read_at}, was changed by version {by}"
                yield Problem("lost update", f"{what}: {found}")
        retries = isinstance(told.turn, (Write, Block)) and told.turn.retry
        if retries or self.shape.policy == "merge":
            return
        # what it would have left alone came with a redo: then it is as if all had begun there
        touched = {at for at in mine if any(self._count(told, at, version.began))}
        for at, by in self._changed_by_others(touched, version.began, number):
            yield Problem("first committer wins", f"{what}: row {at} was changed by version {by}")
        if self.shape.policy == "file_group" and self.shape.keyed and self.shape.buckets == 1:
            every = set().union(*self.states[version.began : number + 1])
            places = {place for at in mine for place in self._places(at, number)}
            for at, by in self._changed_by_others(every, version.began, number):
                if places & self._places(at, by):
                    found = f"row {at} of its bucket was changed by version {by}"
                    yield Problem("first committer wins", f"{what}: {found}")

    def _places(self, at: Ident, number: int) -> set[object]:
        """The partitions in which a version changed a row, of a table that has some."""
        rows = (self.states[number - 1].get(at), self.states[number].get(at))
        return {row[1] if self.shape.partitioned else None for row in rows if row is not None}

    def _named(self, told: Told, window: range) -> set[Ident]:
        """The rows that were asked for by key."""
        if not self.shape.keyed:
            return set()
        found = set()
        every = set().union(*(self.states[version] for version in window), self.states[window.stop])
        for do in told.did:
            found |= {ident(self.shape, row) for row in do.rows}
            if do.kind == "delete_keys" and not do.placed:
                ids = {row[0] for row in do.rows}
                found |= {at for at in every if at[-1] in ids}
        return found

    def _changed_by_others(
        self, rows: Iterable[Ident], low: int, high: int
    ) -> Iterator[tuple[Ident, int]]:
        for at in rows:
            for number in range(low + 1, high):
                if self.versions[number].operation == "expire":
                    continue  # it is in nobody's read set, and in nobody's way
                before, after = self.states[number - 1].get(at), self.states[number].get(at)
                # rows that are appended without a key are in nobody's way
                if before != after and (self.shape.keyed or before is not None):
                    yield at, number

    # --- what was told ---------------------------------------------------------------------------

    def _reads(self, told: Told) -> Iterator[Problem]:
        """What was read is one version, no older than the newest when the turn began."""
        for saw in told.saw:
            if saw.version is None:
                continue
            rows = shown(self.states[saw.version], saw.where)
            if rows != saw.rows:
                found = f"{told.client} saw {saw.rows} at version {saw.version}, which has {rows}"
                yield Problem("one version", found)
            named = isinstance(told.turn, Write) and told.turn.named == "older"
            back = getattr(told.turn, "back", 0)
            if saw.version < told.began and not (named or back):
                found = f"{told.client} saw version {saw.version} after version {told.began}"
                yield Problem("one version", found)
        if isinstance(told.turn, Block) and told.base is not None and not self._replayed(told):
            yield from self._seen_in_block(told, told.base)

    def _seen_in_block(self, told: Told, base: int) -> Iterator[Problem]:
        """A transaction sees the version that it rests on, and what it did itself."""
        steps: list[Do | Saw] = []
        for step in told.steps:
            steps.append(step)
            if not isinstance(step, Saw):
                continue
            try:
                expected = run(self.shape, self.states[base], steps).saw[-1]
            except DuplicateError:
                return
            if expected != step.rows:
                found = f"{told.client}'s transaction saw {step.rows}, not {expected}"
                yield Problem("one version", found)

    def _told(self, told: Told) -> Iterator[Problem]:
        """What was reported is there."""
        result = told.result
        if result is None or told.error is not None:
            return
        what = f"{told.client}'s {told.turn!r} was told version {result.version}"
        mine = [number for number, each in self.by.items() if each is told]
        mine = [n for n in mine if self._writes(self.versions[n])]
        if result.version > self.head:
            yield Problem("INV-10", f"{what}, and the head is {self.head}")
            return
        version = self.versions[result.version]
        if mine and mine != [result.version]:
            yield Problem("INV-10", f"{what}, and committed {mine}")
        if not mine:
            idle = any(self._matches(told, at, self.states[at]) for at in self._window(told))
            if not (idle or self._replayed(told)):
                yield Problem("INV-10", f"{what}, which is not its own")
        elif version.nonce != result.instant.nonce:
            yield Problem("INV-10", f"{what}, which has another instant")

    def _replayed(self, told: Told) -> bool:
        """Whether the result is that of another with the same commit id: nothing is done again."""
        if told.result is None or told.result.version > self.head:
            return False
        return self.undone.is_first_result(told, self.versions[told.result.version])

    def _error(self, told: Told) -> Iterator[Problem]:
        error = told.error
        if error is None:
            return
        what = f"{told.client}'s {told.turn!r} raised {type(error).__name__}: {error}"
        if isinstance(error, DuplicateKeyError):
            runs = (self._run(told, self.states[at]) for at in self._window(told))
            idents = [[ident(self.shape, row) for row in do.rows] for do in told.did]
            doubled = any(len(set(each)) < len(each) for each in idents)
            if not (doubled or any(isinstance(each, DuplicateError) for each in runs)):
                yield Problem("an error", f"{what}: the keys were never there")
        elif isinstance(error, ConflictError):
            theirs = int(str(error.facts["version"]))
            low = told.began if told.read_at is None else min(told.began, told.read_at)
            if theirs <= low or theirs > self.head or self.by.get(theirs) is told:
                yield Problem("an error", f"{what}: version {theirs} was in nobody's way")
            elif not self._tells(self.versions[theirs], told):
                yield Problem("INV-15", f"{what}: version {theirs} changed no row")
            elif not self.refusals.needed(told, low, self._heads(told)):
                found = f"version {theirs} changed nothing that it wrote or read"
                yield Problem("refusal", f"{what}: {found}")
        elif not self._natural(told, error):
            yield Problem("an error", what)

    def _tells(self, version: Version, told: Told) -> bool:
        """Whether a version is one that may refuse a turn: it changed rows, or columns we read."""
        reshaped = told.read_at is not None and version.operation in RESHAPES
        return self._writes(version) or version.restored is not None or reshaped

    def _natural(self, told: Told, error: BaseException) -> bool:
        """Whether an error is what a client may meet here."""
        turn = told.turn
        if isinstance(error, AbortedError):
            return isinstance(turn, (Write, Block)) and turn.aborts
        if isinstance(error, NATURAL):
            return self.undone.is_natural(told, error, self._heads(told))
        if isinstance(turn, Serve) and isinstance(error, TableError):
            return self.undone.is_natural_of_service(told, error, self._heads(told))
        if isinstance(error, InstantExpiredError):
            return self.shape.little and self.history.serves("clean")
        jumped = bool(self.history.events)
        if self.history.serves("rollback") or jumped:
            # its files, and those that it reads, may go from then on: whatever it met
            return isinstance(error, (TableError, SimulatedCrashError))
        if isinstance(error, CommitRetriesExhaustedError):
            return isinstance(turn, (Write, Block)) and turn.retry
        return False


def _counts(told: Told) -> tuple[int, int, int]:
    assert told.result is not None
    stats = told.result.stats
    return stats.rows_inserted, stats.rows_updated, stats.rows_deleted
