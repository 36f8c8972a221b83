"""The command ``sink``: write Kafka topics into a table, show how far it is, move it."""

from __future__ import annotations

import click

from plait.cli.application import Application
from plait.cli.command import (
    bare_command,
    dry_run_option,
    pairs_option,
    table_options,
    yes_option,
)
from plait.cli.commands.sink_upkeep import Seeking, create_table, show_status
from plait.cli.file_options import file_option
from plait.cli.opening import open_table
from plait.cli.size import Size
from plait.cli.stopping import Stopping
from plait.cli.view import Facts
from plait.kafka.client import Clients
from plait.kafka.records.includes import INCLUDED
from plait.kafka.settings import AVRO, JSON, RAW, READ, REFUSE, TEXT, SinkSettings
from plait.kafka.sink import KafkaSink

_DEFAULTS = SinkSettings("-", ("-",))


@bare_command(
    "sink",
    "sink kafka ./flights --bootstrap localhost:9092 --topic flights",
    "sink status ./flights --bootstrap localhost:9092",
)
@click.argument("action", type=click.Choice(["kafka", "status", "seek"]))
@click.argument("uri")
@click.option("--bootstrap", default="", help="Addresses of some brokers, host:port,...")
@click.option("--topic", "topics", multiple=True, help="Topic to read; repeatable.")
@click.option(
    "--name",
    default="",
    help="Name of the sink, its stream and its consumer group. Default: the topics.",
)
@click.option("--control", default="", help="Control topic. Default: NAME-control.")
@click.option(
    "--from",
    "begin",
    default=_DEFAULTS.begin,
    show_default=True,
    metavar="PLACE",
    help="Where the first start begins to read: earliest, latest, or a time.",
)
@click.option(
    "--new-partitions",
    type=click.Choice([REFUSE, READ]),
    default=_DEFAULTS.new_partitions,
    show_default=True,
    help="Whether to read partitions that are added, if rows of a key may come out of order.",
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=_DEFAULTS.interval_s,
    show_default=True,
    help="Seconds between two commits.",
)
@click.option(
    "--patience",
    type=click.FloatRange(min=0.1),
    default=_DEFAULTS.patience_s,
    show_default=True,
    help="Seconds that a commit waits for a process that is late.",
)
@click.option(
    "--format",
    "value_format",
    type=click.Choice([JSON, AVRO, RAW]),
    default=_DEFAULTS.format,
    show_default=True,
    help="How values are encoded.",
)
@click.option(
    "--registry", default="", metavar="URL", help="The schema registry of Avro values and keys."
)
@pairs_option(
    "--registry-client",
    "registry_client",
    "Setting of the registry's client, such as basic.auth.user.info=USER:PASSWORD; repeatable.",
)
@click.option(
    "--schema-file",
    type=click.Path(exists=True, dir_okay=False),
    help="The Avro schema of values that name none.",
)
@click.option(
    "--value-column",
    default=_DEFAULTS.value_column,
    show_default=True,
    help="Column for raw values.",
)
@click.option(
    "--key-format",
    type=click.Choice([JSON, TEXT, AVRO]),
    default=_DEFAULTS.key_format,
    show_default=True,
    help="How keys are encoded, for removals and for --include key=COLUMN.",
)
@pairs_option(
    "--include",
    "include",
    f"Part of a record and the column that takes it; {', '.join(INCLUDED)}; repeatable.",
)
@click.option(
    "--dead-letters",
    default="",
    help="Topic for records that cannot be decoded. Without one, the first stops the sink.",
)
@click.option(
    "--dead-letter-percent",
    type=click.FloatRange(0, 100),
    default=_DEFAULTS.dead_letter_percent,
    show_default=True,
    help="Percentage of records that may fail to decode; more stop the sink.",
)
@click.option(
    "--create",
    "schema",
    metavar="SCHEMA",
    help="Create the table if it does not exist: DDL text, @FILE that contains it, or infer, "
    "from the first records.",
)
@click.option(
    "--record-key",
    "--key",
    "key",
    multiple=True,
    metavar="COLUMN",
    help="With --create: the record key.",
)
@click.option(
    "--rows",
    type=click.IntRange(1),
    default=_DEFAULTS.rows_max,
    show_default=True,
    help="Commit early when the processes hold this number of rows.",
)
@click.option(
    "--bytes",
    "size",
    type=Size(),
    default="1GiB",
    show_default=True,
    help="Commit early when the processes hold this number of bytes.",
)
@click.option(
    "--memory",
    type=Size(),
    default="512MiB",
    show_default=True,
    help="Memory for rows in this process; its partitions share it.",
)
@click.option(
    "--metrics",
    default="",
    metavar="[HOST:]PORT",
    help="Address on which to serve /metrics for Prometheus and /health. The default host is "
    "127.0.0.1. An IPv6 address stands in brackets.",
)
@click.option(
    "--to",
    "places",
    multiple=True,
    metavar="[WHERE=]PLACE",
    help="With seek: earliest, latest, a time or an offset, for WHERE, a topic or TOPIC/PARTITION; "
    "by default for what cannot go on.",
)
@click.option(
    "--drop",
    multiple=True,
    metavar="TOPIC[/PARTITION]",
    help="With seek: forget a topic or partition that was deleted for good; repeatable.",
)
@click.option("--again", is_flag=True, help="With seek: records may be applied a second time.")
@dry_run_option
@yes_option
@pairs_option(
    "--client", "client", "Setting of librdkafka, such as security.protocol=SSL; repeatable."
)
@table_options
@click.pass_obj
def sink(  # noqa: PLR0913 - one parameter an option
    app: Application,
    action: str,
    uri: str,
    storage: dict[str, str],
    *,
    bootstrap: str,
    topics: tuple[str, ...],
    name: str,
    control: str,
    begin: str,
    new_partitions: str,
    interval: float,
    patience: float,
    value_format: str,
    registry: str,
    registry_client: dict[str, str],
    schema_file: str | None,
    value_column: str,
    key_format: str,
    include: dict[str, str],
    dead_letters: str,
    dead_letter_percent: float,
    schema: str | None,
    key: tuple[str, ...],
    rows: int,
    size: int,
    memory: int,
    metrics: str,
    places: tuple[str, ...],
    drop: tuple[str, ...],
    again: bool,
    dry_run: bool,
    yes: bool,
    client: dict[str, str],
) -> None:
    """Write a Kafka topic into a table, exactly once, until it is stopped.

    `kafka` runs one process. Any number of them on any hosts may run with the same options: they
    share the partitions. SIGTERM or SIGINT ends it once what it has read is in the table.

    `status` shows how far a sink is, which process coordinates, and, with --bootstrap, the lag
    of each partition. It asks the table and the brokers, and none of the processes. The exit code
    is 8 if a partition cannot go on.

    `seek` lets a sink continue elsewhere, by a decision that the audit shows: where a topic was
    made again or deleted for good, where Kafka removed what was not read, or where a record is to
    be skipped.
    Stop its processes first.
    """
    if action == "status":
        clients = Clients(bootstrap, client) if bootstrap else None
        show_status(app, open_table(app, uri, storage), name or "+".join(topics), clients)
        return
    if action == "seek":
        if not ((places or drop) and bootstrap):
            raise click.UsageError("seek needs --bootstrap, and --to or --drop")
        seeking = Seeking(app, open_table(app, uri, storage), name or "+".join(topics))
        seeking.plan(Clients(bootstrap, client), places, drop)
        seeking.execute(again=again, dry_run=dry_run, yes=yes)
        return
    settings = SinkSettings(
        bootstrap,
        topics,
        name=name,
        control=control,
        begin=begin,
        new_partitions=new_partitions,
        interval_s=interval,
        patience_s=patience,
        format=value_format,
        registry=registry,
        registry_client=registry_client,
        schema_file=schema_file or "",
        value_column=value_column,
        key_format=key_format,
        include=include,
        dead_letters=dead_letters,
        dead_letter_percent=dead_letter_percent,
        rows_max=rows,
        bytes_max=size,
        memory=memory,
        metrics=metrics,
        client=client,
    )
    stopping = Stopping()
    with stopping.at_once():  # nothing was read, so nothing is to be finished
        if schema is not None:
            create_table(app, settings, uri, storage, schema=schema, key=key)
        table = open_table(app, uri, storage)
        sink = KafkaSink(table, settings)
    sink.run(stopping.asked)
    position = table.stream(settings.name).position
    end = None if position is None else position.end
    app.show({"sink": settings.name, "end": end}, Facts((("sink", settings.name), ("end", end))))


sink.params.append(file_option())
