"""Files that no decision names: foreign list, foreign remove."""

from __future__ import annotations

import click

from plait.cli.application import Application
from plait.cli.command import bare_command, table_options, yes_option
from plait.cli.opening import open_table
from plait.cli.view import Facts, Grid, number
from plait.services.verify.foreign import ForeignFile

_SHOWN = 50
_MEANING = {
    "rolled_back": "its instant was rolled back",
    "unnamed": "its instant committed without naming it",
    "pending": "its instant is at work",
    "unknown": "nobody knows its instant",
    "dropped": "a clean deleted it, and it is there again",
    "unproven": "its decision cannot be read",
    "strange": "not a name of Plait",
}
_MAYBE = ("rolled_back", "unnamed", "unknown")


@bare_command("foreign", "foreign list ./flights", "foreign remove ./flights --dry-run")
@click.argument("action", type=click.Choice(["list", "remove"]))
@click.argument("uri")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and do nothing.")
@yes_option
@table_options
@click.pass_obj
def foreign(
    app: Application, action: str, uri: str, storage: dict[str, str], *, dry_run: bool, yes: bool
) -> None:
    """List the files that no decision names, and whose they are; or remove them.

    Only files whose instant was rolled back, or committed without naming them, are removed. An
    instant that nobody knows is rolled back first, so it can never commit. Files of writers at
    work and files with other names stay.
    """
    table = open_table(app, uri, storage)
    found = table.check.foreign()
    items = [file.to_dict() for file in found]
    if action == "list":
        app.show({"foreign": items}, _grid(found), items=list(items))
        return
    chosen = [file for file in found if file.owner in _MAYBE]
    if dry_run or not chosen:
        data = {"plan": [file.to_dict() for file in chosen], "dry_run": dry_run, "report": None}
        app.show(data, _grid(chosen))
        return
    app.ask(f"remove {len(chosen):,} file(s)?", {"plan": items}, _grid(chosen), yes=yes)
    done = table.check.remove_foreign(chosen)
    facts = Facts(
        (
            ("files removed", number(len(done.removed))),
            ("unknown instants rolled back", number(len(done.ended))),
            ("files kept", number(len(done.kept))),
        )
    )
    data = {"plan": [f.to_dict() for f in chosen], "dry_run": False, "report": done.to_dict()}
    app.show(data, facts)


def _grid(files: tuple[ForeignFile, ...] | list[ForeignFile]) -> Grid:
    rows = [[file.path, file.bytes, _MEANING[file.owner]] for file in files[:_SHOWN]]
    return Grid(("file", ">bytes", "whose"), rows)
