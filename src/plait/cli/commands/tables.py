"""What a table is: create, describe, schema, files, set."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import click

from plait.catalog.catalog import Catalog
from plait.cli.application import Application
from plait.cli.command import command, definition_options, pairs_option, parse_pairs
from plait.cli.opening import open_table
from plait.cli.schema_text import layout_text, schema_text
from plait.cli.view import Facts, Grid, number, size
from plait.model.bucket import partition_parse
from plait.model.contract import PARTS, one_of
from plait.model.partitioning import parse_field, sources_of
from plait.model.schema import Schema, type_name
from plait.table import Table

_FILES_SHOWN = 100
_CONTRACT = "contract."
_TTL, _NEVER = "ttl", "none"
_FILE_COLUMNS = ("path", "partition", "bucket", "kind", "rows", "masked", "bytes", "version")

Storage = dict[str, str]


@command(
    "create",
    'create ./flights --schema "id bigint, day string" --record-key id --partition-by day',
    "create ./events --schema @events.sql --table-type mor --property write.bucket.size=32MiB",
)
@click.option("--schema", required=True, help="DDL text, or @FILE that contains it.")
@definition_options
@click.option("--policy", default="key", show_default=True, help="Conflict policy.")
@click.option("--ttl", help="When rows expire: COLUMN TIME [row|partition], such as 'day 30d'.")
@click.option(
    "--replica",
    "replicas",
    multiple=True,
    metavar="NAME=ADDRESS",
    help="A sink that gets rows first, see `tablectl replicas`; may be repeated.",
)
@pairs_option("--check", "checks", "A condition that no row may break; may be repeated.")
@pairs_option("--generated", "generated", "A column, and the expression of its value; repeatable.")
@click.option("--if-not-exists", is_flag=True, help="Keep an existing table unchanged.")
@click.option("--name", metavar="NAMESPACE.TABLE", help="Its name, where the URI is a catalog.")
def create(  # noqa: PLR0913 - one parameter an option
    app: Application,
    uri: str,
    storage: Storage,
    *,
    schema: str,
    record_key: tuple[str, ...],
    partition_by: tuple[str, ...],
    properties: Storage,
    name: str | None,
    **options: object,
) -> None:
    """Create a table.

    If several clients create it at once, one succeeds. The others fail, or with --if-not-exists
    use the existing table.
    """
    definition = {
        **{each: value for each, value in options.items() if value is not None},
        "record_key": record_key,
        "partition_by": partition_by,
        "properties": properties,
    }
    reached = {"storage_options": storage or None, "allow": app.allowed}
    if name is None:
        table = Table.create(uri, schema_text(schema), **definition, **reached)  # type: ignore[arg-type]  # by name
    else:
        table = Catalog(uri, **reached).create_table(name, schema_text(schema), **definition)  # type: ignore[arg-type]  # by name
        uri = Catalog(uri, **reached).location(name)  # type: ignore[arg-type]  # by name
    if app.expected:  # of a table that was there
        table = open_table(app, uri, storage)
    described = table.inspect.describe()
    app.show(described, Facts(_facts(described)))


@command("describe", "describe ./flights", "describe s3://lake/flights --json")
def describe(app: Application, uri: str, storage: Storage) -> None:
    """Show what a table is and how large."""
    described = open_table(app, uri, storage).inspect.describe()
    app.show(described, Facts(_facts(described)))


def _facts(described: Mapping[str, object]) -> tuple[tuple[str, object], ...]:
    pairs: list[tuple[str, object]] = []
    for name, value in described.items():
        if name == "schema" and isinstance(value, dict):
            pairs.append(("columns", len(value.get("fields", ()))))
            generated = Schema.from_dict(value).generated
            pairs += [(f"generated.{column}", text) for column, text in generated.items()]
        elif name == "bytes" and isinstance(value, int):
            pairs.append((name, f"{size(value)} ({value:,} bytes)"))
        elif name == "former_layouts" and isinstance(value, list):
            pairs += [(f"until version {each['until']}", layout_text(each)) for each in value]
        elif name == "repush" and isinstance(value, dict):
            pairs += [(f"repush.{key}", value[key]) for key in ("directory", "base", "position")]
            pairs += [("repush.layout", layout_text(value["layout"]))]
            source = value.get("source", {})
            pairs += [(f"repush.source.{key}", each) for key, each in source.items()]
            pairs += [(f"repush.{key}", each) for key, each in value["properties"].items()]
        elif isinstance(value, dict):
            for key, item in value.items():
                inside = item.items() if isinstance(item, dict) else [("", item)]
                pairs += [(f"{name}.{key}.{part}".rstrip("."), each) for part, each in inside]
        elif isinstance(value, int) and name in ("rows", "files"):
            pairs.append((name, number(value)))
        else:
            pairs.append((name, value))
    return tuple(pairs)


@command("schema", "schema ./flights", "schema ./flights --json")
def schema(app: Application, uri: str, storage: Storage) -> None:
    """List the columns."""
    described = open_table(app, uri, storage)
    facts = described.inspect.describe()
    generated = Schema.from_dict(facts["schema"]).generated
    fields = list(described.schema)
    columns: list[dict[str, object]] = [
        {
            "name": field.name,
            "type": type_name(field.type),
            "nullable": field.nullable,
            "role": _role(field.name, facts),
            **({"generated": generated[field.name]} if field.name in generated else {}),
        }
        for field in fields
    ]
    titles = ("name", "type", "nullable", "role", "generated")
    rows = [[column.get(title, "") for title in titles] for column in columns]
    grid = Grid(("column", *titles[1:]), rows)
    app.show({"columns": columns}, grid, items=list(columns))


def _role(name: str, facts: Mapping[str, object]) -> list[str]:
    spec = facts["bucket_spec"]
    key = spec["key"] if isinstance(spec, dict) else ()
    texts = facts["partition_by"]
    fields = [parse_field(str(each)) for each in texts] if isinstance(texts, list) else []
    roles = {
        "key": name in key,
        "partition": name in sources_of(fields),
        "ordering": name == facts["ordering"],
    }
    return [role for role, held in roles.items() if held]


@command("files", "files ./flights", "files ./flights --jsonl --limit 10")
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of files.")
def files(app: Application, uri: str, storage: Storage, limit: int | None) -> None:
    """List the live files.

    Text shows the first 100 unless you pass --limit; JSON shows all.
    """
    live = open_table(app, uri, storage).inspect.files()
    shown = limit or (live.num_rows if app.machine else _FILES_SHOWN)
    records = list(islice(live.select(list(_FILE_COLUMNS)).to_pylist(), shown))
    for record in records:
        record["partition"] = list(partition_parse(record["partition"]))
    rows = [[*map(_file_cell, record.items())] for record in records]
    data = {"files": records, "total": live.num_rows}
    columns = ("path", "partition", ">bucket", "kind", ">rows", ">masked", ">size", ">version")
    spare = (">masked", "kind", ">version", ">bucket", "partition")
    app.show(data, Grid(columns, rows, spare), items=list(records))
    if live.num_rows > len(records):
        app.note(f"{len(records)} of {live.num_rows:,} files; --limit shows more")


def _file_cell(item: tuple[str, object]) -> object:
    name, value = item
    if not isinstance(value, int):
        return value
    if name == "bytes":
        return size(value)
    return number(value) if name in ("rows", "masked") else value


def _contract_of(table: Table) -> dict[str, str]:
    contract = table.inspect.describe()["contract"]
    found = contract if isinstance(contract, dict) else {}
    return {f"{_CONTRACT}{key}": str(value) for key, value in found.items()}


@command(
    "set",
    "set ./flights contract.lock=none --wait 60",
    "set ./flights ttl='day 30d partition'",
)
@click.option(
    "--wait", type=float, default=0, help="Seconds to wait until other writers have ended."
)
@click.argument("properties", nargs=-1, required=True, metavar="KEY=VALUE...")
def set(  # noqa: A001 - the name of the command
    app: Application, uri: str, storage: Storage, properties: tuple[str, ...], *, wait: float
) -> None:
    """Set properties of a table, its time to live, or its contract.

    All of them change in one decision; the others stay unchanged. The contract
    (contract.concurrency, contract.lock, contract.failed_writes) needs a command of its own, and
    changes only while no other writer is alive. So does the time to live: ttl='COLUMN TIME
    [row|partition]', ttl='written TIME partition', ttl=none; and with
    the property rows.written=on also ttl='written TIME row'.
    """
    values = parse_pairs(properties, what="set")
    table = open_table(app, uri, storage)
    parts = {key.removeprefix(_CONTRACT): value for key, value in values.items()}
    if _TTL in values:
        if len(values) > 1:
            message = "change the time to live in a separate command, without other properties"
            raise click.UsageError(message)
        ttl = None if values[_TTL] == _NEVER else values[_TTL]
        version = table.alter.set_ttl(ttl).version
        found = table.inspect.describe().get(_TTL)
        app.show({"version": version, "ttl": found}, Facts(((_TTL, found or _NEVER),)))
        return
    in_contract = [key for key in values if key.startswith(_CONTRACT)]
    if in_contract and len(in_contract) != len(values):
        message = "change the contract in a separate command, without other properties"
        raise click.UsageError(message)
    if in_contract:
        for part in parts:
            one_of("contract", part, PARTS)
        result = table.alter.contract(wait_s=wait, **parts)  # type: ignore[arg-type]  # as typed
    else:
        result = table.alter.set(values)
    now = {**table.properties, **_contract_of(table)} if in_contract else table.properties
    app.show({"version": result.version, "properties": now}, Facts(tuple(now.items())))
