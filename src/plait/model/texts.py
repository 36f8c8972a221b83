"""Arguments that are texts by name."""

from __future__ import annotations

from plait.errors import OptionError


def texts_by_name(given: object, what: str) -> dict[str, str]:
    """Return the texts of an argument by their names; None is no text.

    Raises:
        OptionError: it is no mapping of texts.

    >>> texts_by_name({"day": "day(at)"}, "generated"), texts_by_name(None, "checks")
    ({'day': 'day(at)'}, {})
    """
    try:
        found: dict[object, object] = dict(given or {})  # type: ignore[call-overload]  # it asks
    except (TypeError, ValueError):
        found = {None: given}
    texts = {name: text for name, text in found.items() if isinstance(name, str)}
    kept = {name: text for name, text in texts.items() if isinstance(text, str)}
    if len(kept) == len(found):
        return kept
    message = f"{what} takes texts by name, not {str(given)[:100]!r}"
    raise OptionError(message, hint=f"{what}={{'name': 'text'}}", key=what, value=str(given)[:100])
