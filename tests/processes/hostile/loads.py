"""One process that loads sources which a stranger made, under an audit hook.

``python -m tests.processes.hostile.loads``, with JSON on standard input: ``outside``, ``sources``
and ``allow``. It answers with the outcome of each source, what the hook noted, and the ids loaded.
"""

from __future__ import annotations

import json
import logging
import sys

import deltalake  # noqa: F401 - so that imports of libraries are over when the hook begins
import pyarrow.dataset  # noqa: F401 - the same
import pyiceberg.catalog.noop
import pyiceberg.io.pyarrow
import pyiceberg.table  # noqa: F401 - the same

from plait import Table, TableError
from tests.support.audit import Audit


def serve() -> None:
    """Load every source into a table of its own."""
    order = json.load(sys.stdin)
    audit, answers = Audit(order["outside"]), []
    audit.install()
    logging.getLogger("plait").setLevel(logging.CRITICAL)
    for number, source in enumerate(order["sources"]):
        uri = f"memory://hostile-{number}"
        Table.create(uri, "id bigint", record_key="id")
        audit.found, outcome = [], "done"
        try:
            with audit.watch():
                Table.open(uri, allow=order["allow"]).layout.repush(source=source)
        except TableError as error:
            outcome = error.code
        except BaseException as error:  # noqa: BLE001 - what a source may not bring about
            outcome = f"foreign: {type(error).__name__}: {error}"
        ids = Table.open(uri).scan().to_arrow()["id"].to_pylist()
        answers.append({"source": source, "outcome": outcome, "found": audit.found, "ids": ids})
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    serve()
