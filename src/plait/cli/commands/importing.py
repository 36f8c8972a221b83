"""``tablectl import``: a table brought over from another format."""

from __future__ import annotations

import click

from plait.cli.application import Application
from plait.cli.command import command, copy_options, definition_options, dry_run_option
from plait.cli.view import Facts, number
from plait.model.words import TableType
from plait.repush.begin import ROWS_PER_TASK
from plait.repush.bring import ImportPlan, import_table


@command(
    "import",
    "import ./exported-parquet ./flights --dry-run",
    "import delta:s3://lake/flights ./flights --record-key id --partition-by day",
)
@click.argument("target")
@definition_options
@click.option("--no-partitions", is_flag=True, help="Without the partitions of the source.")
@copy_options(ROWS_PER_TASK)
@click.option("--history", is_flag=True, help="Bring older versions over, too, each as one.")
@dry_run_option
def import_(  # noqa: PLR0913 - one parameter an option
    app: Application,
    uri: str,
    storage: dict[str, str],
    *,
    target: str,
    record_key: tuple[str, ...],
    partition_by: tuple[str, ...],
    no_partitions: bool,
    ordering: str | None,
    table_type: TableType | None,
    buckets: int | None,
    bucket_by: tuple[str, ...],
    lock: str | None,
    properties: dict[str, str],
    rows_per_task: int,
    source_options: dict[str, str],
    history: bool,
    dry_run: bool,
) -> None:
    """Create a table from Parquet, Delta, Iceberg, Hudi or Plait.

    The first place is the source: parquet:PLACE, delta:PLACE, iceberg:PLACE, hudi:PLACE, a name in
    a catalog of Iceberg (catalog://CATALOG/NAMESPACE.TABLE), or a place alone. The second is the
    new table, which one decision fills. If the command is killed, run it again: it goes on where it
    was. With --dry-run it says what is created, and what is lost.
    """
    if no_partitions and partition_by:
        raise click.UsageError("--no-partitions excludes --partition-by")
    done = import_table(  # type: ignore[call-overload,misc]  # one form or the other
        uri,
        target,
        record_key=record_key or None,
        partition_by=() if no_partitions else partition_by or None,
        ordering=ordering,
        table_type=table_type,
        buckets=buckets,
        bucket_by=bucket_by or None,
        lock=lock,
        properties=properties,
        rows_per_task=rows_per_task,
        source_options=source_options or None,
        storage_options=storage or None,
        allow=app.allowed,
        history=history,
        dry_run=dry_run,
    )
    lost = [("lost", each) for each in done.lost]
    if isinstance(done, ImportPlan):
        facts: list[tuple[str, object]] = [
            ("source", f"{done.source} (version {done.source_version})"),
            *([("versions", number(done.versions))] if history else []),
            ("rows", number(done.rows)),
            *((f"column {name}", kind) for name, kind in done.columns.items()),
            ("record key", ", ".join(done.record_key) or "none: append-only"),
            ("partition by", ", ".join(done.partition_by) or "none"),
            ("buckets", number(done.buckets)),
            ("table type", done.table_type),
        ]
        app.show({"plan": done.to_dict(), "dry_run": True, "report": None}, Facts((*facts, *lost)))
        return
    facts = [
        ("source", done.source),
        ("imported in version", done.version),
        ("rows copied", number(done.rows)),
        *([("versions copied", number(done.versions))] if history else []),
    ]
    data = {"plan": None, "dry_run": False, "report": done.to_dict()}
    app.show(data, Facts((*facts, *lost)))
