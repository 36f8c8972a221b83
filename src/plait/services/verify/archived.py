"""The files of the archive against the decisions that they hold (INV-01)."""

from __future__ import annotations

from plait.errors import FormatError, StorageError
from plait.model.decision import ArchiveFile
from plait.model.document import sealed_checksum
from plait.services.verify.report import Findings
from plait.services.verify.slots import Walk, part_of
from plait.state.state import TableState
from plait.storage.port import Store
from plait.timeline import paths
from plait.timeline.archive import load_archive


def check_archive(store: Store, state: TableState, walk: Walk, findings: Findings) -> None:
    """Check every file of the archive, and that no slot is empty beyond it."""
    if walk.emptied > state.archive.last:
        message = "the slot is empty, but no decision archived it"
        findings.problem("INV-01", paths.slot(walk.emptied), message)
    for file in state.archive.files:
        findings.count("archive files")
        try:
            bodies = load_archive(store, file.path, sha256=file.sha256)
        except (FormatError, StorageError) as error:
            findings.damage("INV-01", file.path, error)
            continue
        _compare(file, bodies, walk, findings)


def _compare(file: ArchiveFile, bodies: list[bytes], walk: Walk, findings: Findings) -> None:
    if sum(map(len, bodies)) != file.bytes:
        findings.problem("INV-01", file.path, f"it does not have {file.bytes} bytes of decisions")
    for version, body in enumerate(bodies, file.first):
        if walk.seals.get(version) not in (None, part_of(sealed_checksum(body))):
            message = f"its decision of version {version} is not the one on the timeline"
            findings.problem("INV-01", file.path, message)
            return
