"""The errors page, by code. It is shipped with the package, and part of the docs."""

from __future__ import annotations

from importlib.resources import files

PAGE = "errors.md"


def load_page() -> str:
    """Load the page."""
    return files("plait.cli").joinpath(PAGE).read_text(encoding="utf-8")


def load_explanations() -> dict[str, str]:
    """Load the sections, by error code."""
    _, *sections = load_page().split("\n## ")
    parts = (section.partition("\n") for section in sections)
    return {code.strip(): body.strip().replace("**", "") for code, _, body in parts}
