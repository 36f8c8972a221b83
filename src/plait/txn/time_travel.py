"""Which version a bound means: a version, an instant, or a time (RFC 0013).

An instant means its own decision. A time means the newest version that was completed by then. As
the end of a change read it must be settled: the newest commit is as late, or later, so nothing
that is committed from now on can lie before it, whatever clocks do.
"""

from __future__ import annotations

import datetime as dt
import operator
import re
from typing import Final

from plait.errors import FormatError, InstantNotFoundError, OptionError
from plait.model.instant import AHEAD_MS_MAX, Instant, parse_moment
from plait.model.plain import iso
from plait.state.events import ends
from plait.state.state import TableState
from plait.timeline.pending import load_pending
from plait.txn.table_handle import TableHandle

Bound = int | str | dt.datetime | Instant
"""A version, an instant, an aware datetime, or ISO text."""
Moment = str | int | dt.datetime | Instant
"""An instant, an aware datetime, ISO text, or ms since the epoch."""
_DIGITS: Final = re.compile(r"\d{1,20}", re.ASCII)


def find_as_of(handle: TableHandle, state: TableState, moment: Moment) -> int:
    """Return the version to read as of a moment.

    Raises:
        InstantNotFoundError: no such instant, a time in the future, or before the table.
        OptionError: it is no moment.
    """
    instant = instant_of(moment)
    if instant is not None:
        return _find_decided(handle, state, instant, "as_of")
    time_ms = parse_moment(moment)
    _require_past(handle, state, time_ms, "as_of", moment)
    version = state.find_version_at(handle.store, time_ms)
    if version is None:
        message = f"the table did not exist at {moment}"
        raise InstantNotFoundError(message, hint="see Table.inspect.history()", as_of=str(moment))
    return version


def find_bound(handle: TableHandle, state: TableState, bound: Bound, *, key: str = "since") -> int:
    """Return the version of a bound of a change read.

    As ``since``, a time before the table was there means its beginning.

    Raises:
        InstantNotFoundError: no such instant; as ``until``, a time that is not settled, or before
            the table; else a time in the future.
        OptionError: it is no bound.
    """
    version = _version_of(bound)
    if version is not None:
        return version
    instant = instant_of(bound)
    if instant is not None:
        return _find_decided(handle, state, instant, key)
    time_ms = time_of(bound, key)
    if key == "until":
        _require_settled(state, time_ms, bound)
    else:
        _require_past(handle, state, time_ms, key, bound)
    version_then = state.find_version_at(handle.store, time_ms)
    if version_then is None and key == "since":
        return 0
    if version_then is None:
        message = f"{key}={bound}: no such commit exists yet"
        raise InstantNotFoundError(message, hint="see Table.inspect.history()", **{key: str(bound)})
    return version_then


def find_before(handle: TableHandle, state: TableState, time: str, *, key: str) -> int:
    """Return the version before the first one that was completed at a time or later.

    Raises:
        InstantNotFoundError: the time lies in the future.
        OptionError: it is no time.
    """
    time_ms = time_of(time, key)
    _require_past(handle, state, time_ms, key, time)
    version = state.find_version_at(handle.store, time_ms - 1)
    return 0 if version is None else version


def require_version(value: object) -> int:
    """Return a version, of whichever type of integers; raise OptionError for anything else."""
    if not isinstance(value, str) and (number := _version_of(value)) is not None:
        return number
    message = f"version={value!r:.80} is not a version"
    raise OptionError(
        message, hint="pass an integer; as_of takes times", key="version", value=str(value)
    )


def _version_of(value: object) -> int | None:
    """Return the number that this is, or is the text of; None if it is something else."""
    if isinstance(value, str):
        return int(value) if _DIGITS.fullmatch(value) else None
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]  # it is asked
    except TypeError:
        return None


def instant_of(bound: object) -> Instant | None:
    """Return the instant that this is, or is the text of; None if it is neither."""
    try:
        return bound if isinstance(bound, Instant) else Instant.parse(str(bound))
    except FormatError:
        return None


def time_of(bound: object, key: str) -> int:
    """Return ms since the epoch; raise OptionError, naming the key, for what is no time."""
    try:
        return parse_moment(bound)
    except OptionError as error:
        message = f"{key} is neither a version nor a time with a zone"
        hint = "a version, an instant, an aware datetime, or ISO text such as 2026-01-01T00:00:00Z"
        raise OptionError(message, hint=hint, key=key, value=str(bound)) from error


def _find_decided(handle: TableHandle, state: TableState, instant: Instant, key: str) -> int:
    """Return the version that an instant became; raise InstantNotFoundError, saying why not."""
    version = state.find_instant(handle.store, instant)
    if version is not None:
        return version
    why = "no such commit exists"
    rows = state.commits(handle.store)
    ended = rows.filter(ends(rows, instant))
    if ended.num_rows:
        why = f"this instant was rolled back by version {ended['version'][0].as_py()}"
    elif any(each.instant.nonce == instant.nonce for each in load_pending(handle.store)):
        why = "this instant is pending, and has no version yet"
    message = f"{key}={instant}: {why}"
    raise InstantNotFoundError(message, hint="see Table.inspect.history()", instant=str(instant))


def _require_settled(state: TableState, time_ms: int, bound: Bound) -> None:
    """Refuse an end after the newest commit: a later one may still be completed before it."""
    if time_ms <= state.completed_ms:
        return
    newest = f"version {state.version}, completed at {iso(state.completed_ms)}"
    message = f"until={bound} is after the newest commit ({newest}), so it is not settled yet"
    hint = "omit until, and start the next read from changes.until"
    raise InstantNotFoundError(message, hint=hint, until=str(bound), version=state.version)


def _require_past(
    handle: TableHandle, state: TableState, time_ms: int, key: str, bound: object
) -> None:
    """Refuse a time beyond the store's clock, which is asked only if the table does not tell."""
    if time_ms <= state.completed_ms + AHEAD_MS_MAX:
        return
    now_ms = handle.store.now_ms()
    if time_ms > now_ms + AHEAD_MS_MAX:
        message = f"{key}={bound} is in the future: the store's clock shows {iso(now_ms)}"
        hint = "pass a time in the past, a version, or an instant"
        raise InstantNotFoundError(message, hint=hint, **{key: str(bound)})
