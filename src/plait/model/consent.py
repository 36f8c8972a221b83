"""Which places outside of a table its caller lets it be connected with (RFC 0037).

The metadata of a table names places outside of it: sinks of a dual write, the servers of a lock,
the source of a repush. Whoever may write the metadata chooses them, but the process that opens the
table would connect with its own rights. So a text of metadata is never an address by itself. A
connector takes an ``AllowedAddress``, and there are two ways to one: the caller's words in this
call (``given``), or ``Consent.require``, which compares the text with what the caller allowed.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from plait.errors import ConsentError, OptionError, StorageError, shortened

ENVIRONMENT: Final = "PLAIT_ALLOW"
SINK, LOCK, SOURCE, FILE = "sink", "lock", "source", "file"
"""What an address is of: as the error says it."""
_KINDS: Final = ("table", "delta", "iceberg", "hudi", "parquet")
"""Prefixes of an address that say how a source is read, not where it is."""
_WILD: Final = "/*"
_FILE: Final = re.compile(r"\Afile:/(?://)?(?!/)", re.IGNORECASE)
"""A path of this machine as a URL; with two slashes it would name another machine."""
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*+:")
_EMPTY_BASES: Final = re.compile(r"/*+|[A-Za-z][A-Za-z0-9+.-]*+:/*+")
"""What a pattern may not be before its star: every place, or every place of a scheme."""
_UNPLAIN: Final = re.compile(r"[?@\\%\x00-\x1f\x7f]")
"""What a star does not stand for: it could lead elsewhere, as ``?host=`` does for a database."""


@dataclass(frozen=True, slots=True)
class AllowedAddress:
    """An address that may be connected with; only this module makes one."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Consent:
    """The places outside of tables that a caller allows; it is sent to other processes as it is."""

    patterns: tuple[str, ...] = ()
    """Addresses, and such with ``/*`` at their end, for all that lies below."""

    def __repr__(self) -> str:
        """Show how many there are: an address may have a password, and nobody knows where."""
        return f"Consent({len(self.patterns)} addresses)"

    @classmethod
    def of(cls, allow: str | Iterable[str] | None = None) -> Consent:
        """Read what a caller allows, and the environment variable ``PLAIT_ALLOW``.

        A text has one address, or several with blanks in between, as in a shell; each text of a
        list is one.

        Raises:
            OptionError: a text is not understood, or allows every place.

        >>> Consent.of(["s3://bucket/replicas/*"]).patterns
        ('s3://bucket/replicas/*',)
        """
        words = _divided(allow, "allow") if isinstance(allow, str) else list(allow or ())
        inherited = _divided(os.environ.get(ENVIRONMENT, ""), ENVIRONMENT)
        found = (each for text in [*words, *inherited] for each in _patterns(text))
        return cls(tuple(dict.fromkeys(found)))

    def also(self, *addresses: str) -> Consent:
        """Return a consent with addresses that the caller gave in a call."""
        added = list(addresses)
        for address in addresses:
            # Without a working directory a relative place is refused where it is used; a lock's
            # name, such as "file", is no place at all.
            with suppress(StorageError):
                added.append(_located(address))
        return Consent(tuple(dict.fromkeys([*self.patterns, *map(_bare, added)])))

    def and_of(self, other: Consent) -> Consent:
        """Return what either allows."""
        return Consent(tuple(dict.fromkeys([*self.patterns, *other.patterns])))

    def allows(self, address: str) -> bool:
        """Tell whether the caller named an address, or a place above it.

        >>> told = Consent(("s3://bucket/replicas/*", "zookeeper://h1:2181/plait"))
        >>> told.allows("s3://bucket/replicas/eu"), told.allows("s3://bucket/replicas/../x")
        (True, False)
        >>> told.allows("zookeeper://h1:2181/plait?slots=lent")
        True
        """
        text = _bare(address)
        path = _FILE.sub("/", text)
        return any(path == _FILE.sub("/", each) or _below(path, each) for each in self.patterns)

    def require(self, address: str, kind: str, named_by: str) -> AllowedAddress:
        """Return an address that metadata names, if the caller allowed it.

        Args:
            address: the text of the metadata.
            kind: ``sink``, ``lock``, ``source`` or ``file``.
            named_by: the table, or the source, whose metadata names it.

        Raises:
            ConsentError: the caller did not. Nothing was contacted.
        """
        if self.allows(address):
            return AllowedAddress(address)
        text = _bare(address)
        shown = shortened(text)
        message = f"the metadata of {named_by} names {shown!r} ({kind}), which nobody allowed"
        raise ConsentError(message, hint=_remedy(text), address=text, kind=kind, named_by=named_by)


NOTHING: Final = Consent()
"""The consent of a caller who allowed nothing."""


def given(address: str) -> AllowedAddress:
    """Return an address that the caller of this call wrote; never one that was read from a store.

    A test lists who may call it.
    """
    return AllowedAddress(address)


def absolute_path(path: str) -> str:
    """Return a local path as it is from any working directory.

    An absolute one needs no working directory, which may be gone. ``~`` and ``~/x`` are in the home
    directory, as for Polars and DuckDB; a directory of that name is ``./~``.

    Raises:
        StorageError: the path is relative, and the working directory was deleted or may not be
            searched.
        OptionError: this process cannot name it: it has a character that file names of the
            process's locale have not; or there is no home directory.
    """
    if path == "~" or path.startswith("~/"):
        path = os.path.expanduser(path)  # noqa: PTH111 - texts in and out
        if path.startswith("~"):
            hint = "set HOME, or pass an absolute path; a directory named ~ is ./~"
            raise OptionError(f"{path!r}: no home directory", hint=hint, key="uri", value=path)
    encoding = sys.getfilesystemencoding()
    try:
        os.fsencode(path)
    except UnicodeEncodeError as error:
        message = f"{path!r} cannot be named: file names are {encoding} in this process"
        hint = "start Python with PYTHONUTF8=1, or in a UTF-8 locale such as LC_ALL=C.UTF-8"
        raise OptionError(message, hint=hint, key="uri", value=path) from error
    if os.path.isabs(path):  # noqa: PTH117 - texts in and out
        return path
    try:
        return os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118 - texts in and out
    except OSError as error:
        message = f"{path!r} is relative, and there is no working directory: {error.strerror}"
        hint = "change to a directory that exists, or pass an absolute path"
        raise StorageError(message, hint=hint, path=path) from error


def _remedy(text: str) -> str:
    inherited = text if shlex.split(_quoted(text)) == [text] and _plain(text) else _quoted(text)
    return (
        f"if you trust it, say so once: allow=[{text!r}] where the table is opened, "
        f"--allow {_quoted(text)}, or {ENVIRONMENT}={_quoted(inherited)} in the environment"
    )


def _quoted(text: str) -> str:
    return shlex.quote(text)


def _plain(text: str) -> bool:
    """Tell whether a list with blanks in between may have it without quotes."""
    return not any(sign.isspace() or sign in "'\"\\" for sign in text)


def _divided(text: str, where: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        message = f"{where} is not a list of addresses: {error}"
        hint = "write addresses with blanks in between, and quotes around one that has a blank"
        raise OptionError(message, hint=hint, key=where, value=text) from error


def _patterns(text: object) -> tuple[str, str]:
    """Return an address of a caller as it was written, and as metadata has it."""
    if not isinstance(text, str) or not text.strip():
        hint = "name a place, such as s3://bucket/replica or zookeeper://h1:2181/plait"
        raise OptionError(f"not an address: {text!r}", hint=hint, key="allow", value=str(text))
    located = _located(text)
    base = located.removesuffix(_WILD)
    if text.strip("*") == "" or (base != located and _EMPTY_BASES.fullmatch(base)):
        message = f"allow={text!r} does not name a place"
        hint = "a star stands at the end, after a host or a directory: s3://bucket/replicas/*"
        raise OptionError(message, hint=hint, key="allow", value=text)
    return _bare(text), located


def _located(text: str) -> str:
    """Return an address of a caller as metadata has it: from any working directory."""
    kind, colon, place = text.partition(":")
    if colon and kind in _KINDS:
        text = place
    text = _bare(text)
    scheme, _, rest = text.partition("://")
    if scheme.partition("+")[0] == "sqlite" and rest.startswith("/") and rest[1:2] not in ("/", ""):
        return f"{scheme}:///{absolute_path(rest.removeprefix('/'))}"
    found = _SCHEME.match(text)
    if found is None:
        return os.path.normpath(absolute_path(text))
    if found[0].lower() == "file:" and text[5:6] == "/":
        return os.path.normpath("/" + text[5:].lstrip("/"))
    return found[0].lower() + text[found.end() :]


def _bare(address: str) -> str:
    """Return an address without what says how a lock is used there."""
    return address.partition("?")[0] if address.startswith("zookeeper:") else address


def _below(address: str, pattern: str) -> bool:
    """Tell whether an address lies below a place, whatever its connector makes of the rest."""
    if not pattern.endswith(_WILD):
        return False
    base = pattern[:-1]
    rest = unquote(address.removeprefix(base))
    if not address.startswith(base) or _UNPLAIN.search(rest):
        return False
    return not {".", ".."}.intersection(re.split(r"[/#]", rest))
