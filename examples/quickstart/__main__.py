"""Run the quickstart: ``python -m examples.quickstart --type mor --force``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import click

from examples.quickstart import report
from examples.quickstart.place import Place
from examples.quickstart.progress import progress_on
from examples.quickstart.run import Outcome, Run, Setting
from examples.quickstart.source import LIBRARIES, require_libraries
from plait.cli.application import Application
from plait.cli.command import shared_options
from plait.cli.exits import CheckFailedError
from plait.cli.main import main
from plait.ports import SystemClock


@click.command("quickstart", context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    default=Path("plait-quickstart"),
    show_default=True,
    help="Where the table goes.",
)
@click.option("--type", "table_type", type=click.Choice(["cow", "mor"]), default="cow")
@click.option("--force", is_flag=True, help="Remove a previous quickstart first, and only that.")
@click.pass_obj
def quickstart(
    app: Application, directory: Path, table_type: Literal["cow", "mor"], *, force: bool
) -> None:
    """Five PySpark processes, one table, one is killed.

    Three ingest the flights of an airport each, one corrects delays of all three, one writes a
    bad backfill and is killed. Then every value is compared with the source. Takes a few minutes.
    """
    app.command = "quickstart"
    require_libraries(LIBRARIES)
    place = Place(directory)
    place.prepare(force=force)
    app.uri = str(place.table)
    silent = app.settings.quiet or app.machine
    progress = progress_on(app.streams.err, silent=silent, color=app.settings.color)
    setting = Setting(table_type=table_type)
    with progress, Run(place, setting, progress=progress, clock=SystemClock()) as run:
        outcome = run.execute()
    app.show(report.data(outcome, place.table), *report.blocks(outcome, place.table))
    _require_right(outcome, place)
    place.tidy()


def _require_right(outcome: Outcome, place: Place) -> None:
    """Refuse to call it a success when anything is not as it must be."""
    wrong = [
        *outcome.overlap.problems,
        *(f"{name} {path}: {message}" for name, path, message in outcome.problems),
    ]
    comparison = outcome.comparison
    if not comparison.passed:
        wrong.append(
            f"{comparison.lost:,} rows lost or wrong, {comparison.surplus:,} too many; "
            f"columns: {', '.join(comparison.wrong) or 'none'}"
        )
    if wrong:
        hint = f"the table and the logs of all processes are in {place.directory}"
        raise CheckFailedError("; ".join(wrong), hint=hint)


quickstart.params += shared_options(hidden=False)

if __name__ == "__main__":
    sys.exit(main(root=quickstart))
