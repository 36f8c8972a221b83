"""Which features a table may have: more by an upgrade, fewer by a downgrade (RFC 0029)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from plait.definition import features as known
from plait.definition.features import KNOWN, VERSIONS, WRITER_FEATURES, closed
from plait.definition.table_def import TableDef
from plait.errors import FeatureError, OptionError
from plait.model.contract import PUBLISH_OPTION, Options
from plait.model.decision import CommitResult, Decision
from plait.model.history import PendingEntry
from plait.model.instant import Action, Operation
from plait.model.partitioning import is_plain_name
from plait.model.plain import Plain
from plait.model.plan import UNIQUE_TABLE, TableLayout
from plait.model.schema import WRITTEN_OPTION
from plait.state.state import TableState, features_in_use, usable_features
from plait.txn.recovery import list_pending
from plait.txn.service import publish_service
from plait.txn.table_handle import TableHandle, client

_COPY = "copy the rows into a new table: that is the only way to be without it"
_CLEAN = "let versions go by `tablectl clean`, and see its options clean.retain.* and clean.grace"


@dataclass(frozen=True, slots=True)
class FeatureUse(Plain):
    """What still uses a feature."""

    feature: str
    what: str
    remedy: str
    """How to get rid of it."""


@dataclass(frozen=True, slots=True)
class FeaturePlan(Plain):
    """What an upgrade or a downgrade would do now."""

    KEYS = "version before after turned_on turned_off uses"

    version: int
    before: tuple[str, ...]
    """What the table may use, beside what every client knows."""
    after: tuple[str, ...]
    uses: tuple[FeatureUse, ...] = ()
    """What stands in the way of a downgrade."""
    older: tuple[PendingEntry, ...] = ()
    """Live writers whose clients do not know enough."""
    wanted: tuple[str, ...] | None = None
    """What an upgrade adds to whatever the table may use by then; None: a downgrade."""

    @property
    def turned_on(self) -> tuple[str, ...]:
        """Features that the table may use afterwards, and not now."""
        return tuple(name for name in self.after if name not in self.before)

    @property
    def turned_off(self) -> tuple[str, ...]:
        """Features that the table may use now, and not afterwards."""
        return tuple(name for name in self.before if name not in self.after)

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        return Plain.to_dict(self) | {"older": [str(each.instant) for each in self.older]}


def plan_upgrade(handle: TableHandle, features: Iterable[str] | None = None) -> FeaturePlan:
    """Plan to let a table use more features; write nothing."""
    wanted = closed(KNOWN) if features is None else _named(features)
    state = handle.cache.refresh()
    before = _usable(state)
    after = closed((*before, *wanted))
    fresh = set(after) - set(before)
    older = _older(handle, fresh) if fresh else ()
    return FeaturePlan(state.version, before, after, older=older, wanted=wanted)


def plan_downgrade(handle: TableHandle, to: Iterable[str] | int) -> FeaturePlan:
    """Plan to let a table use fewer features; write nothing."""
    after = _version(to) if isinstance(to, int) else _named(to)
    state = handle.cache.refresh()
    _require_no_automatic(state)
    before, uses = _usable(state), _uses(handle, state, after)
    going = set(before) - set(after)
    older = _older(handle, {WRITER_FEATURES}) if going else ()
    return FeaturePlan(state.version, before, after, uses, older)


def _require_no_automatic(state: TableState) -> None:
    """Refuse a downgrade of a table whose next commit may turn features on again."""
    if state.table.upgrades == "always":
        message = "the table turns features on by itself: features.upgrade=always"
        hint = "`tablectl set URI features.upgrade=compatible` first"
        raise OptionError(message, hint=hint, key="features.upgrade", value="always")


def _usable(state: TableState) -> tuple[str, ...]:
    """Return what a table may use, and what it uses already."""
    return closed((*usable_features(state), *features_in_use(state)))


def change_features(handle: TableHandle, plan: FeaturePlan) -> CommitResult | None:
    """Decide which features the table may use; what uses them is looked at on each head."""
    if plan.older:
        first = plan.older[0]
        message = (
            f"{len(plan.older)} live writers have clients that do not know enough, such as "
            f"{first.instant} (process {first.pid} on {first.host})"
        )
        hint = "let them end and start them with a newer Plait, or end them by `tablectl rollback`"
        live = [str(each.instant) for each in plan.older]
        changed = [*plan.turned_on, *plan.turned_off]
        raise FeatureError(message, hint=hint, features=changed, live=live)

    def draft(state: TableState) -> Decision | None:
        after = plan.after
        if plan.wanted is None:
            _require_no_automatic(state)
        else:  # others may have turned something on since
            after = closed((*_usable(state), *plan.wanted))
        uses = _uses(handle, state, after)
        if uses:
            first = uses[0]
            message = f"{first.feature} cannot go: {first.what} uses it"
            if len(uses) > 1:
                message += f", and {len(uses) - 1} others are in the way"
            facts = [each.to_dict() for each in uses]
            raise FeatureError(message, hint=first.remedy, features=[first.feature], uses=facts)
        table = _trimmed(handle, state, after)
        if set(after) == set(_usable(state)) and table == state.table:
            return None
        return Decision(
            instant=handle.new_instant(state),
            action=Action.PROPERTY,
            operation=Operation.PROPERTY,
            base=state.version,
            table=replace(table, allowed=after).to_dict(),
            client=client(),
        )

    decision = publish_service(handle, draft)
    if plan.wanted is None:
        handle.cache.checkpoint(1)  # older decisions name what is gone
    if decision is None:
        return None
    return CommitResult(decision.version, decision.instant, decision.stats)


def _older(handle: TableHandle, needed: set[str]) -> tuple[PendingEntry, ...]:
    """Return the live writers whose clients do not know some features, or do not say."""
    return tuple(e for e in list_pending(handle) if e.alive and needed - set(e.features))


def _named(features: Iterable[str]) -> tuple[str, ...]:
    names = [features] if isinstance(features, str) else list(features)
    for name in names:
        if name not in KNOWN:
            hint = f"one of {', '.join(closed(KNOWN))}"
            raise OptionError(f"unknown feature {name!r}", hint=hint, key="features", value=name)
    return closed(names)


def _version(number: int) -> tuple[str, ...]:
    if number not in VERSIONS:
        message = f"unknown version {number} of the format"
        hint = f"one of {', '.join(map(str, VERSIONS))}, or names of features"
        raise OptionError(message, hint=hint, key="to", value=number)
    return closed(VERSIONS[number])


# --- what uses a feature ------------------------------------------------------------------------


def _trimmed(handle: TableHandle, state: TableState, after: Sequence[str]) -> TableDef:
    """Return the definition without what only tells of former use."""
    table = state.table
    if set(_usable(state)) <= set(after):
        return table
    shown = (*state.lineage.saved, *table.kept)
    former = tuple(
        each
        for each in table.former
        if each.until >= state.horizons.final or any(version <= each.until for version in shown)
    )
    repushed = tuple(each for each in table.repushed if _count_in(handle, state, each))
    options = table.options.to_dict()
    if known.WRITTEN not in after and options.get(WRITTEN_OPTION) == "off":
        del options[WRITTEN_OPTION]
    return replace(table, former=former, repushed=repushed, options=Options.of(options))


def _count_in(handle: TableHandle, state: TableState, directory: str) -> int:
    """Count the files in the directory of a repush, those that wait for a clean too."""
    named = state.folded(handle.store).paths().to_pylist()
    inside = {path for path in named if path.startswith(f"{directory}/")}
    return len(inside | {info.path for info in handle.store.list(directory)})


def _uses(handle: TableHandle, state: TableState, after: Sequence[str]) -> tuple[FeatureUse, ...]:
    """Return what uses features that are not to stay."""
    if set(_usable(state)) <= set(after):
        return ()
    table = _trimmed(handle, state, after)
    found = [
        FeatureUse(feature, what, remedy)
        for feature, what, remedy in _found(handle, state, table)
        if feature not in after
    ]
    counted = {each.feature for each in found}
    others = (name for name in closed(table.features) if name not in (*after, *counted))
    definition = "the definition of the table"
    return (*found, *(FeatureUse(name, definition, "take it out of there") for name in others))


def _found(
    handle: TableHandle, state: TableState, table: TableDef
) -> Iterator[tuple[str, str, str]]:
    lineage = state.lineage
    for each in lineage.savepoints:
        yield known.RESTORES, f"savepoint {each.name!r}", "`tablectl savepoint NAME --drop`"
    if lineage.restores or lineage.replays or lineage.restarts:
        yield known.RESTORES, "a restore or replay, which says what counts as committed,", _COPY
    if state.archive.files:
        what = f"the archive, which alone has the decisions up to version {state.archive.last},"
        yield known.ARCHIVE, what, _COPY
    if table.ttl is not None:
        yield known.TTL, f"the time to live {str(table.ttl)!r}", "`tablectl set URI ttl=none`"
    yield from _found_in_options(table)
    for name in table.replicas:
        yield known.REPLICAS, f"sink {name!r}", "`tablectl replicas remove URI NAME`"
    if table.spec.unique == UNIQUE_TABLE:
        yield known.UNIQUE, "unique='table', which never changes,", _COPY
    for schema in table.schemas.values():
        if schema.defaults:
            what = f"schema {schema.id}, where a column has a default,"
            yield known.DEFAULTS, what, _COPY
        if schema.checks:
            yield known.CHECKS, f"schema {schema.id}, which has a constraint,", _COPY
        if schema.generated:
            yield known.GENERATED, f"schema {schema.id}, where a column is generated,", _COPY
    yield from _found_in_layouts(handle, state, table)


def _found_in_options(table: TableDef) -> Iterator[tuple[str, str, str]]:
    if WRITTEN_OPTION in table.options.to_dict():
        yield known.WRITTEN, "the property rows.written", f"`tablectl set URI {WRITTEN_OPTION}=off`"
    if table.published:
        yield known.PUBLISHED, "the property publish", f"`tablectl set URI {PUBLISH_OPTION}=`"


def _found_in_layouts(
    handle: TableHandle, state: TableState, table: TableDef
) -> Iterator[tuple[str, str, str]]:
    if table.repush is not None:
        what = f"the open repush in {table.repush.directory}"
        yield known.REPUSH, what, "let it end, or `tablectl repush --cancel`"
    for former in table.former:
        what = f"the layout of the versions up to {former.until}, which can still be read,"
        yield known.REPUSH, what, _CLEAN
    for directory in table.repushed:
        files = _count_in(handle, state, directory)
        remedy = f"`tablectl compact --full`; then {_CLEAN}"
        yield known.REPUSH, f"a repush, which left {files} files in {directory},", remedy
    opened = () if table.repush is None else (table.repush.layout,)
    now = ((table.spec.layout, "the layout of the table", "`tablectl repush` to another layout"),)
    then = [(e.layout, f"the layout up to version {e.until}", _CLEAN) for e in table.former]
    later = ((layout, "the layout of the open repush", "cancel it") for layout in opened)
    for layout, what, remedy in (*now, *then, *later):
        for feature in _features_in(layout):
            yield feature, what, remedy


def _features_in(layout: TableLayout) -> Iterator[str]:
    if layout.buckets.by:
        yield known.BUCKET_BY
    if not all(map(is_plain_name, layout.partition_by)):
        yield known.PARTITION_FIELDS
