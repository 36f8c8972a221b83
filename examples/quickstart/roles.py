"""Who does what: the five processes, as data."""

from __future__ import annotations

from dataclasses import dataclass

KEY = ("time_hour", "carrier", "flight")
PARTITION = "origin"
ORDERING = "revision"
ROWS = 336_776
AIRPORTS = ("EWR", "JFK", "LGA")

SOURCE_DDL = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, "
    "sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, "
    "origin string, dest string, air_time int, distance int, hour int, minute int, "
    "time_hour timestamp"
)
"""The columns of the source, in its order."""
TABLE_DDL = f"{SOURCE_DDL}, {ORDERING} int"

INGESTED, CORRECTED, BOGUS = 0, 1, 9
"""Revisions. The bogus one would win over everything, if it ever became visible."""
CORRECTED_MONTH = 2
CORRECTION_MINUTES = 5
"""February's delays were logged five minutes too low; the corrections carry whole rows."""
BOGUS_MONTH = 12
BOGUS_DELAY = 9999


@dataclass(frozen=True, slots=True)
class Role:
    """One process: which rows of the source it takes, and what it makes of them (Spark SQL)."""

    name: str
    does: str
    column: str
    value: str | int
    revision: int
    changes: tuple[tuple[str, str], ...] = ()
    doomed: bool = False

    @property
    def where(self) -> str:
        """Return the rows as a predicate."""
        return f"{self.column} = {self.value!r}"

    def columns(self) -> list[str]:
        """Return the select list over the source."""
        changed = dict(self.changes)
        names = [part.split()[0] for part in SOURCE_DDL.split(", ")]
        kept = [f"{changed[n]} AS {n}" if n in changed else n for n in names]
        return [*kept, f"{self.revision} AS {ORDERING}"]


def _later(column: str) -> tuple[str, str]:
    return column, f"{column} + {CORRECTION_MINUTES}"


ROLES = (
    *(Role(f"ingest-{code}", f"ingests {code}", "origin", code, INGESTED) for code in AIRPORTS),
    Role(
        "correct",
        "corrects delays",
        "month",
        CORRECTED_MONTH,
        CORRECTED,
        (_later("dep_delay"), _later("arr_delay")),
    ),
    Role(
        "backfill",
        "bad backfill, is killed",
        "month",
        BOGUS_MONTH,
        BOGUS,
        (("dep_delay", str(BOGUS_DELAY)), ("arr_delay", str(BOGUS_DELAY))),
        doomed=True,
    ),
)
DOOMED = next(role for role in ROLES if role.doomed)


def role_of(name: str) -> Role:
    """Return the role of a name."""
    return next(role for role in ROLES if role.name == name)
