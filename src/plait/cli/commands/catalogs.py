"""Tables by name: list, namespace, rename, drop, undrop, purge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from plait.catalog.catalog import Catalog, CatalogEntry, PurgeReport
from plait.cli.application import Application
from plait.cli.command import command, dry_run_option, yes_option
from plait.cli.view import Facts, Grid

Storage = dict[str, str]


def open_catalog(app: Application, uri: str, storage: Storage) -> Catalog:
    """Open the catalog at a root."""
    return Catalog(uri, storage_options=storage or None, allow=app.allowed)


@command("list", "list ./lake", "list s3://lake --namespace sales --json")
@click.option("--namespace", help="Only the tables of this namespace.")
@click.option("--dropped", is_flag=True, help="The tables without a name: dropped, or going.")
def list(  # noqa: A001 - the name of the command
    app: Application, uri: str, storage: Storage, *, namespace: str | None, dropped: bool
) -> None:
    """List the tables of a catalog, and its namespaces."""
    catalog = open_catalog(app, uri, storage)
    if dropped and namespace is not None:
        raise click.UsageError("--dropped takes no --namespace")
    found = catalog.dropped() if dropped else catalog.tables(namespace)
    grid = _grid(found)
    items = [each.to_dict() for each in found]
    if dropped or namespace is not None:
        app.show({"tables": items}, grid, items=[*items])
        return
    names = catalog.namespaces()
    facts = Facts((("namespaces", ", ".join(names)),))
    app.show({"namespaces": [*names], "tables": items}, facts, grid, items=[*items])


@command("namespace", "namespace ./lake sales", "namespace ./lake sales --drop")
@click.argument("name")
@click.option("--drop", "drops", is_flag=True, help="Drop it; it must have no tables.")
@click.option("--if-not-exists", is_flag=True, help="Keep an existing namespace.")
def namespace(
    app: Application, uri: str, storage: Storage, name: str, *, drops: bool, if_not_exists: bool
) -> None:
    """Create a namespace, and the catalog with the first one; or drop it."""
    if drops and if_not_exists:
        raise click.UsageError("--drop takes no --if-not-exists")
    if drops:
        open_catalog(app, uri, storage).drop_namespace(name)
    else:
        catalog = Catalog.create(uri, storage_options=storage or None, allow=app.allowed)
        catalog.create_namespace(name, if_not_exists=if_not_exists)
    state = "dropped" if drops else "created"
    app.show({"namespace": name, "state": state}, Facts(((name, state),)))


@command("rename", "rename ./lake sales.trips sales.rides", "rename ./lake a.x b.x --json")
@click.argument("name")
@click.argument("new_name")
def rename(app: Application, uri: str, storage: Storage, name: str, new_name: str) -> None:
    """Give a table of a catalog another name; its files stay where they are."""
    catalog = open_catalog(app, uri, storage)
    catalog.rename(name, new_name)
    _show(app, CatalogEntry(new_name, catalog.location(new_name)))


@command("drop", "drop ./lake sales.trips --dry-run", "drop ./lake sales.trips --yes --json")
@click.argument("name")
@dry_run_option
@yes_option
def drop(
    app: Application, uri: str, storage: Storage, name: str, *, dry_run: bool, yes: bool
) -> None:
    """Drop a table of a catalog: nobody reads or writes it any more.

    Its files stay until tablectl purge, and tablectl undrop takes it back until then.
    """
    catalog = open_catalog(app, uri, storage)
    planned = CatalogEntry(name, catalog.location(name))
    if dry_run:
        app.show({"plan": planned.to_dict(), "dry_run": True}, Facts(_facts(planned)))
        return
    app.ask(f"drop {name}?", planned.to_dict(), Facts(_facts(planned)), yes=yes)
    _show(app, catalog.drop(name))


@command(
    "undrop",
    "undrop ./lake ./lake/tables/0123456789abcdef",
    "undrop ./lake sales.trips --name sales.again",
)
@click.argument("location")
@click.option("--name", help="Its name from now on; by default its former one.")
def undrop(app: Application, uri: str, storage: Storage, location: str, name: str | None) -> None:
    """Take the drop of a table back; tablectl list --dropped shows where it is.

    LOCATION is its location, the last part of that, or its former name if only one had it.
    """
    _show(app, open_catalog(app, uri, storage).undrop(location, name))


@command("purge", "purge ./lake --dry-run", "purge ./lake --now --yes")
@click.option("--now", is_flag=True, help="Do not wait until clean.grace of a table is over.")
@dry_run_option
@yes_option
def purge(
    app: Application, uri: str, storage: Storage, *, now: bool, dry_run: bool, yes: bool
) -> None:
    """Delete the files of dropped tables whose grace is over, and that nobody reads.

    The plan says which tables stay, and why. One that somebody reads or writes stays, too.
    """
    catalog = open_catalog(app, uri, storage)
    plan = catalog.purge(now=now, dry_run=True)
    names = {each.location: each.name for each in catalog.dropped()}
    grid = _results(plan, "goes", names)
    if dry_run:
        app.show({"plan": plan.to_dict(), "dry_run": True}, grid)
        return
    question = "delete the files of the tables that go, as far as nobody needs them?"
    app.ask(question, {"plan": plan.to_dict()}, grid, yes=yes or not plan.purged)
    report = catalog.purge(now=now)
    app.show(report.to_dict(), _results(report, "purged", names))


def _results(report: PurgeReport, gone: str, names: Mapping[str, str]) -> Grid:
    done = [(each.location, gone) for each in report.purged] + [*report.kept.items()]
    rows = [[names.get(location), location, result] for location, result in done]
    return Grid(("table", "location", "result"), rows)


def _grid(entries: Sequence[CatalogEntry]) -> Grid:
    rows = [[each.name, each.location, each.state] for each in entries]
    return Grid(("table", "location", "state"), rows)


def _show(app: Application, entry: CatalogEntry) -> None:
    app.show(entry.to_dict(), Facts(_facts(entry)))


def _facts(entry: CatalogEntry) -> tuple[tuple[str, object], ...]:
    return tuple(entry.to_dict().items())
