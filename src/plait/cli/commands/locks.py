"""Who holds the lock of a table."""

from __future__ import annotations

from plait.cli.application import Application
from plait.cli.command import command
from plait.cli.opening import open_table
from plait.cli.view import Facts, time_short


@command("locks", "locks ./flights", "locks s3://lake/flights --json")
def locks(app: Application, uri: str, storage: dict[str, str]) -> None:
    """Tell who holds the lock of a table, and since when.

    Writers queue on it only after they lost a version to another, so most of the time nobody
    does. A lock that is lost costs time, never rows: versions are decided by slots.
    """
    state = open_table(app, uri, storage).locks()
    holder = state.holder
    pairs: list[tuple[str, object]] = [
        ("lock", state.lock),
        ("provider", state.provider),
        ("versions decided by", state.slots),
        ("held by", "nobody" if holder is None else holder.owner),
    ]
    if holder is not None:
        pairs += [("since (UTC)", time_short(holder.since_ms)), ("token", holder.token)]
        pairs.append(("lost", holder.lost or "no"))
    app.show(state.to_dict(), Facts(tuple(pairs)))
