"""What a store can really do, found by races."""

from __future__ import annotations

import click

from plait.cli.application import Application
from plait.cli.command import bare_command, storage_option
from plait.cli.exits import Exit
from plait.cli.view import Block, Facts, Grid
from plait.storage import open_store, probe_store
from plait.storage.location import DECLARE, PROVEN


@bare_command(
    "probe",
    "probe s3://lake/trial --storage-option endpoint_url=http://minio:9000",
    "probe /mnt/shared/trial --json",
)
@storage_option
@click.argument("uri")
@click.pass_obj
@click.pass_context
def probe(context: click.Context, app: Application, uri: str, storage: dict[str, str]) -> None:
    """Race calls on a store to test whether it can be written.

    Threads and processes write the same names below URI while others read them; these files are
    deleted. The result is stored there for this host, so that its writers need not probe again.
    A race can show that a store is unfit; it cannot prove that it is fit. The exit code is 8 if
    the store is unfit.
    """
    report = probe_store(open_store(uri, storage, create=True))
    answers = (
        ("one winner of each name", report.one_winner),
        ("whole files only", report.whole),
        ("reads see finished writes", report.reads_fresh),
        ("listings see finished writes", report.lists_fresh),
        ("one winner of each swap", report.swaps),
    )
    blocks: list[Block] = [Facts(tuple((name, "yes" if yes else "no") for name, yes in answers))]
    if report.notes:
        blocks.append(Grid(("noted",), [(note,) for note in dict.fromkeys(report.notes)]))
    app.show({**report.to_dict(), "fit": report.fit}, *blocks)
    if not report.fit:
        app.note("unfit: do not write a table here")
        context.exit(int(Exit.PROBLEMS))
    app.note("found no reason against writing a table here")
    if report.swaps:
        app.note(f"storage option {DECLARE}={PROVEN} lets other hosts skip this probe")
