"""The one storage option of our own: what the user vouches for."""

from __future__ import annotations

from plait.errors import OptionError
from plait.model.plan import StoreSpec

DECLARE = "plait.declare"
COHERENT = "coherent"
"""Of a network mount or an fsspec adapter: all see at once what anyone has finished writing."""
ATOMIC_CREATE = "atomic-create"
"""Of an fsspec adapter: ``pipe_file(mode="create")`` is one conditional write of a whole file."""
_WORDS = (COHERENT, ATOMIC_CREATE)


def declared_of(spec: StoreSpec) -> frozenset[str]:
    """Return the words declared; raise OptionError for one that is not known."""
    value = dict(spec.options).get(DECLARE, "")
    words = frozenset(str(value).replace(",", " ").split())
    if unknown := sorted(words - set(_WORDS)):
        message = f"{DECLARE}={' '.join(unknown)!r} is not known"
        hint = f"some of {', '.join(_WORDS)}"
        raise OptionError(message, hint=hint, key=DECLARE, value=value)
    return words


def options_of(spec: StoreSpec) -> dict[str, object]:
    """Return the options that are for the file system's library."""
    return {key: value for key, value in spec.options if key != DECLARE}
