"""Files on storage against what is needed, and the other way round (INV-04, INV-05, INV-06)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import CorruptMetadataError, FormatError
from plait.files.data_file import parse_path
from plait.files.deletion import VECTOR_FRAME
from plait.files.entry_file import SEAL_BYTES
from plait.model.document import Proof, open_record
from plait.model.instant import Instant
from plait.services.verify.report import Findings
from plait.state.checkpoint import checkpoint_of
from plait.state.events import Folded, ReadableVersions
from plait.storage.port import Store
from plait.timeline import paths

LISTED = pa.schema([("path", pa.string()), ("size", pa.int64())])
_CHUNK = 16_384
_PLAIN = "only regular files and directories are read: put them here themselves"
_REMOVE = "no version will ever need it; `tablectl foreign remove` deletes it"
_ENTRY_FRAME = VECTOR_FRAME + SEAL_BYTES
"""Bytes around a deletion vector in its file."""
_RECORDS = (paths.PENDING, paths.LEASES, paths.ATTEMPTS, paths.POSITIONS)
_CHANGED = (
    "this record was changed, or is that of another name; it counts as if it said what keeps most"
)
_FREE = (
    paths.TABLE,
    f"{paths.META}/hints/",
    f"{paths.META}/locks/",
    f"{paths.TIMELINE}/",  # judged where the slots are read
)


def _is_record(path: str) -> bool:
    """Tell whether this is a record that no decision has to explain."""
    replica = paths.attempt_of(path) is not None or paths.is_position(path)
    return replica or paths.is_lease(path) or paths.index_of(path) is not None


def note_records(store: Store, findings: Findings) -> None:
    """Note records of work under way that were changed: they protect everything, and it shows."""
    for place in _RECORDS:
        for info in store.list(place):
            if paths.record_of(info.path) is None and not _is_record(info.path):
                continue
            try:
                body = store.find(info.path)
            except CorruptMetadataError:  # too large to be one
                body = b""
            if body is not None and open_record(info.path, body)[0] is Proof.DAMAGED:
                findings.note(info.path, _CHANGED)


@dataclass(frozen=True, slots=True)
class Listing:
    """Everything on storage, as seen at one time."""

    data: pa.Table
    """Path and size of each file outside ``.meta``."""
    meta: list[str]
    """Files under ``.meta`` that need an explanation."""
    odd: dict[str, str]
    """What a name stands for, where that is no regular file."""

    @classmethod
    def take(cls, store: Store, findings: Findings) -> Listing:
        """List the whole table; columnar, no Python object a data file is kept."""
        chunks: list[pa.Table] = [LISTED.empty_table()]
        names: list[str] = []
        sizes: list[int] = []
        meta: list[str] = []
        odd: dict[str, str] = {}
        for info in store.list(""):
            findings.count("listed")
            if info.kind:
                odd[info.path] = info.kind
            if info.path.startswith(f"{paths.META}/"):
                if not (info.path.startswith(_FREE) or _is_record(info.path)):
                    meta.append(info.path)
                continue
            if info.path.startswith(paths.PUBLISHED):
                continue  # nothing that Plait reads depends on it
            names.append(info.path)
            sizes.append(info.size)
            if len(names) == _CHUNK:
                chunks.append(pa.table([names, sizes], schema=LISTED))
                names, sizes = [], []
        chunks.append(pa.table([names, sizes], schema=LISTED))
        return cls(pa.concat_tables(chunks).combine_chunks(), meta, odd)

    def missing(self, path: str) -> str:
        """Say why a file that a version needs is not there."""
        for name in (path, path.partition("/")[0]):
            if name in self.odd:
                return f"a version needs it, and {name} is {self.odd[name]}; {_PLAIN}"
        return "a file that a version needs is missing"

    def unknown(self, path: str, *, named: bool) -> str:
        """Say what a file is that nothing explains; ``named`` if its name is one of ours."""
        if path in self.odd:
            return f"it is {self.odd[path]}; {_PLAIN}, or move it away"
        if named:
            return "unknown: no decision or pending record explains it; see `tablectl foreign list`"
        return "not a file of Plait; it does no harm, and Plait does not delete it; move it away"


@dataclass(frozen=True, slots=True)
class Needed:
    """Files that a version that can be read needs."""

    files: pa.Table  # path, bytes, live
    others: pa.Table  # path, least bytes, live: deletion vectors and sidecars
    older: pa.Table
    """What ``files`` has of those that are not live, whole: ADDED and more."""

    @classmethod
    def of(cls, folded: Folded, shown: ReadableVersions) -> Needed:
        """Take everything that one of these versions shows."""
        files = folded.files.filter(shown.covers(folded.files))
        until = files["until"]
        masks = folded.masks.filter(pc.is_valid(folded.masks["dv_path"]))
        masks = masks.filter(shown.covers(masks))
        masks = masks.filter(pc.is_in(masks["path"], value_set=files["path"].combine_chunks()))
        live = files.filter(pc.is_null(until))["path"].combine_chunks()
        masked = pc.and_(pc.is_null(masks["until"]), pc.is_in(masks["path"], value_set=live))
        size = pc.add(pc.add(masks["dv_offset"], masks["dv_bytes"]), _ENTRY_FRAME)
        aux = folded.aux.filter(pc.greater(folded.aux["version"], shown.horizon))
        none = pa.chunked_array([pa.repeat(0, aux.num_rows)])
        no = pa.chunked_array([pa.repeat(pa.scalar(False), aux.num_rows)])  # noqa: FBT003 - a value
        names = ["path", "bytes", "live"]
        vectors = pa.table([masks["dv_path"], pc.fill_null(size, 0), masked], names=names)
        sidecars = pa.table([aux["path"], none, no], names=names)
        return cls(
            pa.table([files["path"], files["bytes"], pc.is_null(until)], names=names),
            pa.concat_tables([vectors, sidecars]),
            files.filter(pc.invert(pc.is_in(files["path"], value_set=live))),
        )

    def check(self, listing: Listing, findings: Findings) -> None:
        """Report what is missing or has another size."""
        findings.count("files", self.files.num_rows)
        for path, size, live, has in _beside(self.files, listing):
            invariant = "INV-04" if live else "INV-05"
            if has is None or path in listing.odd:
                findings.problem(invariant, path, listing.missing(path))
            elif has != size:
                message = f"it has {has} bytes, but {size} are declared"
                findings.problem(invariant, path, message)
        for path, size, live, has in _beside(self.others, listing):
            invariant = "INV-04" if live else "INV-05"
            if has is None or path in listing.odd:
                findings.problem(invariant, path, listing.missing(path))
            elif has < size:
                message = f"it has {has} bytes, but at least {size} are declared"
                findings.problem(invariant, path, message)


def _beside(needed: pa.Table, listing: Listing) -> Iterator[tuple[str, int, bool, int | None]]:
    """Return what does not have exactly the size declared, with the size found."""
    at = pc.index_in(needed["path"], value_set=listing.data["path"].combine_chunks())
    sizes = pc.take(listing.data["size"], at)
    unlike = needed.append_column("found", sizes).filter(
        pc.invert(pc.fill_null(pc.equal(sizes, needed["bytes"]), False))  # noqa: FBT003 - arrow's fill value
    )
    columns = [unlike[name].to_pylist() for name in ("path", "bytes", "live", "found")]
    yield from zip(*columns, strict=True)


@dataclass(frozen=True, slots=True)
class Explained:
    """What can explain that a file is on storage: a version, a pending instant, or a rollback."""

    named: pa.Array
    """Paths of data files that the state knows: live, kept for older versions, or condemned."""
    meta: frozenset[str]
    """Files under ``.meta`` that something names."""
    pending: frozenset[str]
    """Nonces of instants that have records."""
    late: frozenset[str]
    """Nonces of rolled-back instants whose files the next clean looks for."""
    committed: npt.NDArray[np.uint64]
    ended: npt.NDArray[np.uint64]
    repushes: frozenset[str]
    """Directories of repushes: of one that is under way, and of those that a clean empties."""

    def judge(self, listing: Listing, findings: Findings) -> None:
        """Report files that nothing explains, and note those that can go (INV-06)."""
        known = pc.is_in(listing.data["path"], value_set=self.named)
        for path in listing.data.filter(pc.invert(known))["path"].to_pylist():
            if path.partition("/")[0] in self.repushes:
                continue
            name = parse_path(path)
            self._judge(path, None if name is None else name.instant, listing, findings)
        for path in listing.meta:
            if path not in self.meta:
                self._judge(path, _meta_instant(path), listing, findings)

    def _judge(
        self, path: str, instant: Instant | None, listing: Listing, findings: Findings
    ) -> None:
        nonce = None if instant is None else instant.nonce
        if checkpoint_of(path) is not None:
            findings.note(path, "no checkpoint names it; a clean deletes it")
        elif nonce in self.pending:
            return
        elif nonce in self.late:
            findings.note(path, f"left by {instant}, which was rolled back; a clean deletes it")
        elif nonce is not None and int(nonce, 16) in self.ended:
            findings.note(path, f"left by {instant}, which was rolled back long ago; {_REMOVE}")
        elif nonce is not None and int(nonce, 16) in self.committed:
            message = f"left by {instant}, which committed without naming it; {_REMOVE}"
            findings.note(path, message)
        else:
            message = listing.unknown(path, named=instant is not None)
            findings.problem("INV-06", path, message)


def _meta_instant(path: str) -> Instant | None:
    """Return the instant in the name of a record, a heartbeat, or a file that one owns."""
    owner = paths.owner_of(path)
    if owner is not None:
        return owner
    places = (paths.PENDING, paths.HEARTBEATS, paths.MANIFESTS)
    place = next((each for each in places if path.startswith(f"{each}/")), None)
    if place is None:
        return None
    name = path.removeprefix(f"{place}/").split("/", 1)[0]
    try:
        return Instant.parse(name.split(".", 1)[0])
    except FormatError:
        return None
