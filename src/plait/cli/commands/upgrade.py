"""Which features a table may have: upgrade, downgrade."""

from __future__ import annotations

import click

from plait.cli.application import Application
from plait.cli.command import command, dry_run_option
from plait.cli.opening import open_table
from plait.cli.view import Facts, Grid
from plait.model.decision import CommitResult
from plait.services.definition.upgrade import FeaturePlan


@command(
    "upgrade",
    "upgrade ./flights --dry-run",
    "upgrade ./flights --features ttl-1,archive-1",
)
@click.option("--features", help="Their names, with commas; by default all that Plait knows.")
@dry_run_option
def upgrade(
    app: Application, uri: str, storage: dict[str, str], features: str | None, *, dry_run: bool
) -> None:
    """Let a table use more features of the format.

    It is one commit. Writers must know these features from then on, and readers each of them from
    its first use on. It is refused while a live writer has a client that does not know them.
    """
    table = open_table(app, uri, storage)
    names = None if features is None else _names(features)
    plan = table.alter.upgrade(features=names, dry_run=True)
    done = None if dry_run else table.alter.upgrade(plan)
    _show(app, plan, done, dry_run=dry_run)


@command(
    "downgrade",
    "downgrade ./flights --to ttl-1,archive-1 --dry-run",
    "downgrade ./flights --to 1",
)
@click.option(
    "--to",
    required=True,
    metavar="FEATURES|VERSION",
    help="The features that stay, with commas, or a version of the format.",
)
@dry_run_option
def downgrade(
    app: Application, uri: str, storage: dict[str, str], to: str, *, dry_run: bool
) -> None:
    """Let a table use fewer features of the format, so that older clients can use it.

    It is one commit. It is refused while something uses a feature that would go: the plan says
    what, and how to get rid of it. It is also refused while a live writer has a client that could
    bring the feature back. What every client knows always stays, such as slots-1.
    """
    table = open_table(app, uri, storage)
    wanted = int(to) if to.isascii() and to.isdigit() else _names(to)
    plan = table.alter.downgrade(to=wanted, dry_run=True)
    done = None if dry_run else table.alter.downgrade(plan)
    _show(app, plan, done, dry_run=dry_run)


def _names(text: str) -> list[str]:
    return [name for name in map(str.strip, text.split(",")) if name]


def _show(app: Application, plan: FeaturePlan, done: CommitResult | None, *, dry_run: bool) -> None:
    version = None if done is None else done.version
    if version is None and not dry_run:
        app.note("the table is like that already")
    facts = Facts(
        (
            ("version", version),
            ("turned on", ", ".join(plan.turned_on) or "nothing"),
            ("turned off", ", ".join(plan.turned_off) or "nothing"),
            ("older writers", len(plan.older)),
        )
    )
    uses = [[each.feature, each.what.rstrip(","), each.remedy] for each in plan.uses]
    shown = {"version": version, "dry_run": dry_run, "plan": plan.to_dict()}
    app.show(shown, facts, Grid(("still used", "by", "remedy"), uses))
