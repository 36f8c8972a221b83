"""Writers that died: what they leave is there, and their process is not."""

from __future__ import annotations

import functools
import json
import subprocess
import sys

from plait.model.document import seal_record
from plait.model.instant import Instant
from plait.storage.port import Store
from plait.timeline import paths

_TELL = "from plait.txn.liveness import process_mark; print(process_mark())"


@functools.cache
def ended_process() -> str:
    """Return the mark of a process of this machine that has ended."""
    ran = subprocess.run([sys.executable, "-c", _TELL], capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def bury(store: Store, instant: Instant | str) -> None:
    """Let the process of an instant have ended, as its record tells."""
    path = f"{paths.PENDING}/{instant}.requested"
    body = store.find(path)
    assert body is not None
    document = json.loads(body)
    assert document["process"]
    assert document.pop("seal")
    store.put(path, seal_record(path, {**document, "process": ended_process()}))
