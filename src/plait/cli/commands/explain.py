"""Explain error codes from the errors page, which the package contains and the docs show."""

from __future__ import annotations

from importlib.resources import files

import click

from plait.cli.application import Application
from plait.cli.command import bare_command
from plait.cli.exits import NotKnownError
from plait.cli.view import Prose

PAGE = "errors.md"


def load_page() -> str:
    """Load the errors page."""
    return files("plait.cli").joinpath(PAGE).read_text(encoding="utf-8")


def load_explanations() -> dict[str, str]:
    """Load the sections of the errors page, by error code."""
    _, *sections = load_page().split("\n## ")
    parts = (section.partition("\n") for section in sections)
    return {code.strip(): body.strip().replace("**", "") for code, _, body in parts}


@bare_command("explain", "explain conflict_retryable", "explain outcome_unknown")
@click.argument("code")
@click.pass_obj
def explain(app: Application, code: str) -> None:
    """Explain an error code.

    Show its cause, the state of the table, and the remedy.
    """
    sections = load_explanations()
    wanted = code.strip().lower()
    if wanted not in sections:
        raise NotKnownError(f"unknown error code {code!r}", hint=f"one of {', '.join(sections)}")
    text = sections[wanted]
    app.show({"code": wanted, "text": text}, Prose(text))
