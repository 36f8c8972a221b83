"""Explain error codes from the errors page."""

from __future__ import annotations

import click

from plait.cli.application import Application
from plait.cli.command import bare_command
from plait.cli.exits import NotKnownError
from plait.cli.explanations import load_explanations
from plait.cli.view import Prose


@bare_command("explain", "explain conflict_retryable", "explain outcome_unknown")
@click.argument("code")
@click.pass_obj
def explain(app: Application, code: str) -> None:
    """Explain an error code.

    How it comes about, in which state the table is, and the remedy.
    """
    sections = load_explanations()
    wanted = code.strip().lower()
    if wanted not in sections:
        message = f"unknown error code {code!r}"
        raise NotKnownError(message, hint=f"one of {', '.join(sections)}")
    text = sections[wanted]
    app.show({"code": wanted, "text": text}, Prose(text))
