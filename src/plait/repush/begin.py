"""Begin and cancel: the decisions that say where a repush leads, and that it is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from plait.definition.create import define_layout, require_layout_fits, require_whole
from plait.definition.replicated_table import require_no_replicas
from plait.definition.table_def import TableDef
from plait.definition.ttl import Ttl
from plait.errors import OptionError, RepushOpenError, RepushRefusedError
from plait.interop.publication import require_libraries
from plait.model.contract import Options
from plait.model.decision import CommitResult, Decision
from plait.model.instant import Action, Instant, Operation
from plait.model.plan import TableLayout
from plait.model.repush import OpenRepush, RepushSource, repush_directory
from plait.model.request import require_commit_id
from plait.model.schema import names_of
from plait.repush.follow import require_followable
from plait.repush.source import FoundSource, WantedSource, located, require_identity
from plait.services.maintenance.leftovers import delete_repushed
from plait.state.state import TableState
from plait.txn.matrix import SWAPS
from plait.txn.refusal import find_commit
from plait.txn.service import publish_service
from plait.txn.table_handle import TableHandle, client

ROWS_PER_TASK = 5_000_000
_ROWS_PER_TASK_MAX = 1 << 40
_ORDER = ("cluster.by", "cluster.kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class RepushRequest:
    """What one call asks of a repush, with the names of the arguments of ``Layout.repush``.

    ``Layout.repush`` and ``tablectl repush`` make it from what a person named, ``undo`` from a
    former layout, and ``resumed`` from a repush that is open. It is no part of a definition: what
    the decision records of it is an ``OpenRepush``. What is None stays as the table has it.
    """

    buckets: int | None = None
    partition_by: tuple[str, ...] | None = None
    ordering: str | None = None
    """The ordering column; an empty text for none."""
    table_type: str | None = None
    properties: Mapping[str, object] = field(default_factory=dict)
    """Options that change with the swap."""
    rows_per_task: int = ROWS_PER_TASK
    bucket_by: tuple[str, ...] | None = None
    """The columns whose hash chooses the bucket; () for the whole key."""
    source: WantedSource | None = None
    """Source whose rows replace those of the table; None keeps the table's rows."""
    expire: Ttl | None = None
    """Time to live of rows; older ones are removed before the copy. None removes nothing."""
    commit_id: str | None = None
    """The commit id of the swap: a repush whose commit id was committed is over."""

    def __post_init__(self) -> None:
        """Refuse a commit id that names nothing; raise OptionError."""
        require_commit_id(self.commit_id)

    def recorded_properties(self) -> dict[str, str]:
        """Return the options that change with the swap, as the table keeps them."""
        return Options.of(self.properties).to_dict()

    def layout_for(self, table: TableDef) -> TableLayout:
        """Return the layout that it leads a table to, with an id of its own.

        While a repush is open, what is not named is as it was when that began: a restore may have
        given the table another layout since.

        Raises:
            OptionError, SchemaError: the table cannot have this layout.
        """
        require_whole("rows_per_task", self.rows_per_task, _ROWS_PER_TASK_MAX)
        spec = table.spec
        if table.repush is not None:
            # A call that goes on must compute the layout that the first call computed. What the
            # caller left out is therefore taken from the layout at the base.
            spec = table.spec_at(table.repush.base, spec.schema.id)
        old = spec.layout
        count = old.buckets.count if self.buckets is None else self.buckets
        new = define_layout(
            spec.schema,
            spec.key,
            partition_by=old.partition_by if self.partition_by is None else self.partition_by,
            ordering=old.ordering if self.ordering is None else self.ordering or None,
            table_type=old.table_type if self.table_type is None else self.table_type,
            buckets=count if spec.keyed or self.buckets is not None else None,
            bucket_by=old.buckets.by if self.bucket_by is None else self.bucket_by,
        )
        require_layout_fits(table, new, table.options.merged(self.properties))
        return replace(new, buckets=replace(new.buckets, id=table.new_layout_id()))


def with_order(
    properties: Mapping[str, object] | None, sort_by: str | Sequence[str] | None
) -> dict[str, object]:
    """Return the options that change, with those that name an order of rows.

    Raises:
        OptionError: the order is named twice.
    """
    values = dict(properties or {})
    if sort_by is None:
        return values
    twice = sorted(name for name in _ORDER if name in values)
    if twice:
        message = f"sort_by and {twice[0]} both say how rows are ordered"
        raise OptionError(message, hint="name one of them", key="sort_by", value=str(sort_by))
    names = names_of(sort_by, "sort_by")
    return {**values, "cluster.by": ",".join(names), "cluster.kind": "sort"}


def request_for(layout: TableLayout) -> RepushRequest:
    """Return the request that leads to a layout."""
    return RepushRequest(
        buckets=layout.buckets.count or None,
        partition_by=layout.partition_by,
        ordering=layout.ordering or "",
        table_type=layout.table_type,
        bucket_by=layout.buckets.by,
    )


def resumed(opened: OpenRepush) -> RepushRequest:
    """Return the request that leads to an open repush, to go on with it."""
    return replace(
        request_for(opened.layout),
        properties=opened.properties,
        rows_per_task=opened.rows_per_task,
        source=_same(opened),
        commit_id=opened.commit_id,
    )


def _same(opened: OpenRepush) -> WantedSource | None:
    """Return the source of an open repush: the table's metadata names it, not the caller."""
    if opened.source is None:
        return None
    return WantedSource(opened.source.address, since=opened.base, given=False)


def begin(handle: TableHandle, request: RepushRequest) -> OpenRepush | None:
    """Begin a repush, or go on with the one that is open if it leads to the same.

    Returns None if its commit id was committed: then it is over.

    Raises:
        OptionError, SchemaError: the table cannot have this layout, or the rows of the source;
            nothing was written.
        InstantError: the version that is the source cannot be read; nothing was written.
        MissingDependencyError: this client cannot publish in a format that is named.
        RepushOpenError: another repush is open.
        RepushRefusedError: what was committed cannot be carried over, or the commit id is that of
            another operation; nothing was written.
        UndoneError: a restore undid the commit of this commit id.
    """
    found: list[OpenRepush] = []
    look = _SourceLookup(handle, request.source)

    def draft(state: TableState) -> Decision | None:
        table, there = state.table, state.table.repush
        # The draft runs once for each head, and only the last run counts.
        found.clear()
        # Asked on each head: another process may swap in between, and beginning again would lay the
        # table out twice (INV-10).
        if is_over(handle, state, request.commit_id):
            return None
        layout = request.layout_for(table)
        if there is not None:
            _require_same(there, layout, request)
            found[:] = [there]
            return None
        if request.properties:
            require_libraries(request.properties)
        # The base is fixed by the decision that begins. From then on no clean takes a version from
        # the base on, so the copy and all later rounds can read what they need (INV-05).
        base, source = _sourced(state, request, layout, look)
        instant = handle.new_instant(state)
        opened = OpenRepush(
            repush_directory(instant.nonce),
            base,
            layout,
            request.rows_per_task,
            request.recorded_properties(),
            source,
            request.commit_id,
        )
        found[:] = [opened]
        return _draft(instant, Operation.BEGIN_REPUSH, state, replace(table, repush=opened))

    publish_service(handle, draft)
    return found[0] if found else None


def is_over(handle: TableHandle, state: TableState, commit_id: str | None) -> bool:
    """Tell whether a repush was swapped in under its commit id.

    Raises:
        RepushRefusedError: another operation was committed under it.
        UndoneError: a restore undid the commit.
    """
    version = None if commit_id is None else find_commit(handle.store, state, commit_id)
    if version is None:
        return False
    if operation_of(handle, state, version) not in SWAPS:
        raise commit_id_taken(str(commit_id), version)
    return True


def operation_of(handle: TableHandle, state: TableState, version: int) -> Operation | None:
    """Return the operation of a version; None if there is no such version."""
    commits = state.commits(handle.store, since=version - 1, columns=("version", "operation"))
    return Operation(commits["operation"][0].as_py()) if commits.num_rows else None


def commit_id_taken(commit_id: str, version: int) -> RepushRefusedError:
    """Return the error for a commit id under which something else was committed."""
    message = f"the commit id {commit_id!r} of the repush was committed in version {version}"
    hint = "nothing was changed; begin it under another commit id, once none is open"
    return RepushRefusedError(message, hint=hint, commit_id=commit_id, version=version)


@dataclass(slots=True)
class _SourceLookup:
    """What a caller asks to load, looked at once, however many heads its decision meets."""

    handle: TableHandle
    wanted: WantedSource | None
    _elsewhere: FoundSource | None = None

    def at(self, state: TableState) -> RepushSource | None:
        """Return the source, whose rows fit the table as it is at a version."""
        if self.wanted is None:
            return None
        found = self._elsewhere or self.wanted.find(self.handle, state)
        # A source elsewhere is looked at once, because listing it may be slow. A version of this
        # table is looked for at each head: a clean may have taken it.
        if not self.wanted.address.own:
            self._elsewhere = found
        found.require_fits(state.table.spec)
        return found.source


def require_layout(handle: TableHandle, request: RepushRequest) -> None:
    """Refuse what ``begin`` would refuse for its layout; write nothing.

    Raises:
        OptionError, SchemaError: the table cannot have this layout, or rows of a source would have
            to expire too.
        RepushOpenError: another repush is open.
    """
    table = handle.cache.refresh().table
    if request.expire is not None and request.source is not None:
        message = "expire removes rows of the table, and a source replaces all of them"
        hint = "name one of them; rows of the source can expire after the repush"
        raise OptionError(message, hint=hint, key="expire", value=str(request.expire))
    layout = request.layout_for(table)
    if table.repush is not None:
        _require_same(table.repush, layout, request)


def _sourced(
    state: TableState, request: RepushRequest, layout: TableLayout, look: _SourceLookup
) -> tuple[int, RepushSource | None]:
    """Return since when changes are followed, and what is loaded; None: the rows of then."""
    if request.source is None:
        return state.version, None
    require_no_replicas(state.table, "a repush from a source")
    require_identity(state.table.spec, layout)
    base = state.version if request.source.since is None else request.source.since
    state.require_readable(base, onwards=True)
    require_followable(look.handle, state, base)
    return base, look.at(state)


def cancel(handle: TableHandle) -> CommitResult | None:
    """Cancel the open repush and delete what it built; None if none is open.

    Raises:
        CommitOutcomeUnknownError: the store does not say.
    """

    def draft(state: TableState) -> Decision | None:
        table, there = state.table, state.table.repush
        if there is None:
            return None
        over = replace(table, repush=None, repushed=(*table.repushed, there.directory))
        return _draft(handle.new_instant(state), Operation.CANCEL_REPUSH, state, over)

    # First the decision, then the files: whoever still writes into the directory finds the repush
    # closed before its files go. A crash between the two leaves the directory to the next clean.
    decision = publish_service(handle, draft)
    delete_repushed(handle)
    if decision is None:
        return None
    return CommitResult(decision.version, decision.instant, decision.stats)


def _draft(instant: Instant, operation: Operation, state: TableState, table: TableDef) -> Decision:
    return Decision(
        instant=instant,
        action=Action.REPUSH,
        operation=operation,
        base=state.version,
        table=table.to_dict(),
        client=client(),
    )


def _require_same(there: OpenRepush, layout: TableLayout, request: RepushRequest) -> None:
    same = (
        there.layout.same_place(layout) and dict(there.properties) == request.recorded_properties()
    )
    same = same and request.commit_id in (None, there.commit_id)
    address = None if request.source is None else located(request.source.address)
    if same and address == (None if there.source is None else there.source.address):
        return
    message = f"another repush is open, in {there.directory}"
    hint = "let it end (the same call goes on with it), or cancel it with Table.layout.cancel()"
    raise RepushOpenError(message, hint=hint, directory=there.directory, base=there.base)
