"""Texts that callers give."""

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
        found: dict[str, str] = dict(given or {})  # type: ignore[call-overload]  # it asks
        if all(isinstance(each, str) for pair in found.items() for each in pair):
            return found
    except (TypeError, ValueError):
        pass
    message = f"{what} takes texts by name, not {str(given)[:100]!r}"
    raise OptionError(message, hint=f"{what}={{'name': 'text'}}", key=what, value=str(given)[:100])


def is_text(text: str) -> bool:
    r"""Tell whether a text can be written: half of a character, a lone surrogate, cannot.

    >>> is_text("\u00fc"), is_text("\ud800")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
