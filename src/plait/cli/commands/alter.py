"""Change the columns of a table: alter."""

from __future__ import annotations

import click

from plait.cli.application import Application
from plait.cli.command import command, dry_run_option, yes_option
from plait.cli.opening import open_table
from plait.cli.view import Grid
from plait.expr.alter import parse_steps
from plait.model.schema import NO_NOTE, Schema, id_of, type_name
from plait.model.steps import DropColumn
from plait.services.definition.alter import alter as alter_columns
from plait.services.definition.alter import planned
from plait.table import handle_of

_TITLES = (">id", "column", "type", "null", "default", "generated", "comment")


@command(
    "alter",
    "alter ./flights 'ADD COLUMN gate string' 'RENAME COLUMN dest TO destination' --dry-run",
    "alter ./flights 'ADD CONSTRAINT late CHECK (delay > -120)'",
)
@click.argument("changes", nargs=-1, required=True)
@dry_run_option
@yes_option
def alter(
    app: Application,
    uri: str,
    storage: dict[str, str],
    changes: tuple[str, ...],
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    """Change the columns of a table.

    All of them are one commit, in the words of ALTER TABLE of Spark SQL: ADD COLUMN, DROP COLUMN,
    RENAME COLUMN a TO b, and ALTER COLUMN a with TYPE t, DROP NOT NULL, SET DEFAULT v, DROP
    DEFAULT, COMMENT 'c', FIRST, AFTER b, SET NOT NULL, SET EXPRESSION AS (e) or DROP EXPRESSION;
    ADD CONSTRAINT n CHECK (p) and DROP CONSTRAINT n. Rows that are there are compared with new
    constraints and expressions first. No file is written again. Older versions keep their columns.
    Writers that are at work commit with the new ones. A drop of a column asks first.
    """
    table = open_table(app, uri, storage)
    steps = [step for text in changes for step in parse_steps(text)]
    schema = planned(handle_of(table), steps)
    dropped = ", ".join(step.path for step in steps if isinstance(step, DropColumn))
    if dropped and not dry_run:
        plan = {"version": None, "dry_run": True, "schema": schema.to_dict()}
        app.ask(f"drop {dropped}?", plan, Grid(_TITLES, _rows(schema)), yes=yes)
    result = None if dry_run else alter_columns(handle_of(table), steps)
    version = None if result is None else result.version
    if version is None and not dry_run:
        app.note("the columns are like that already")
    shown = {"version": version, "dry_run": dry_run, "schema": schema.to_dict()}
    app.show(shown, Grid(_TITLES, _rows(schema)))


def _rows(schema: Schema) -> list[list[object]]:
    found: list[list[object]] = []
    for column in schema.arrow:
        note = schema.notes.get(id_of(column), NO_NOTE)
        null = "yes" if column.nullable else "no"
        found.append(
            [
                id_of(column),
                column.name,
                type_name(column.type),
                null,
                note.default or "",
                note.generated or "",
                note.comment,
            ]
        )
    return found
