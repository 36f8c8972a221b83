"""What an end looks like to a client that comes long after: ends alike go on alike.

Recovery, a clean and the next write look at which instants were decided, in which order and by
whom, and which files are there. Marks of attempts and checksums only tell ends apart that nobody
would treat differently; so do times, for all of them are long over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from plait.storage.port import Store
from plait.testing.wrapper import is_metadata
from plait.timeline import paths

_MARKS = re.compile(r"[0-9a-f]{64}|\d{20}|\d{17}(?=-)|[0-9a-f]{16}|\d{13}")
"""Checksums, numbers of slots, times of instants, nonces, and times in milliseconds."""
_SLOT, _NONCE = 20, 16


def shape(store: Store, facts: Iterable[object]) -> str:
    """Return a text that is equal for ends that look alike."""
    seen: dict[str, str] = {}

    def unmarked(found: re.Match[str]) -> str:
        mark = found[0]
        if len(mark) == _NONCE:  # whose it is stays: an actor's nonces begin alike
            return seen.setdefault(mark, f"{mark[:2]}#{len(seen)}")
        return mark if len(mark) == _SLOT else "-"

    text = "\n".join([*map(repr, facts), *_files(store)])
    return _MARKS.sub(unmarked, text)


def _files(store: Store) -> Iterable[str]:
    """Return a line for each file: its name, and what it says if it is a record."""
    for info in store.list(""):
        body = b"" if info.path.startswith(paths.TIMELINE) else store.find(info.path) or b""
        record = is_metadata(info.path) and body.startswith(b"{")
        yield f"{info.path} {info.size > 0} {body.decode(errors='replace') if record else ''}"
