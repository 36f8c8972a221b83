"""What the location of a table means, and the words that are declared of its store.

A location means what it means in Spark, or it is refused with the way to say it here.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Final

from plait.errors import MissingDependencyError, OptionError
from plait.model.store_address import StoreAddress
from plait.model.texts import is_text

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_USER = re.compile(r"^([^:@]*:[/\\]*)?.*@", re.DOTALL)
_FILE: Final = "file"
_REMEDIES: Final = {
    "dbfs": "on Databricks the same place is /dbfs/..., or keep the table in the object store",
    "hdfs": "name the server: hdfs://namenode:8020/path",
    "s3": "name the bucket: s3://bucket/path",
    "s3a": "name the bucket: s3a://bucket/path",
    "s3n": "name the bucket: s3n://bucket/path",
    "gs": "name the bucket: gs://bucket/path",
    "abfss": "name the container: abfss://container@account.dfs.core.windows.net/path",
    "wasb": "write it as abfss://container@account.dfs.core.windows.net/path",
    "wasbs": "write it as abfss://container@account.dfs.core.windows.net/path",
}
"""What to say where a URL lacks a part that Spark takes from its settings, or is of no use."""
_NEVER: Final = frozenset({"dbfs", "wasb", "wasbs"})
_PACKAGES: Final = {
    "abfs": "adlfs",
    "abfss": "adlfs",
    "adl": "adlfs",
    "az": "adlfs",
    "box": "boxfs",
    "dropbox": "dropboxdrivefs",
    "dvc": "dvc",
    "gcs": "gcsfs",
    "git": "pygit2",
    "github": "requests",
    "gs": "gcsfs",
    "hf": "huggingface_hub",
    "http": "aiohttp",
    "https": "aiohttp",
    "lakefs": "lakefs-spec",
    "oci": "ocifs",
    "ocilake": "ocifs",
    "oss": "ossfs",
    "sftp": "paramiko",
    "smb": "smbprotocol",
    "ssh": "paramiko",
    "tos": "tosfs",
    "webdav": "webdav4",
    "webhdfs": "requests",
}
"""The package that brings a scheme to fsspec; a scheme's own name may be a stranger's package."""

DECLARE = "plait.declare"
COHERENT = "coherent"
"""Declares that a network mount or fsspec adapter shows every finished write to all at once."""
ATOMIC_CREATE = "atomic-create"
"""Declares that ``pipe_file(mode="create")`` of an fsspec adapter is one conditional write."""
PROVEN = "proven"
"""Declares that ``tablectl probe`` found a store fit, so that opening does not probe it."""
_WORDS = (COHERENT, ATOMIC_CREATE, PROVEN)


def plain_url(place: str | os.PathLike[str]) -> str:
    """Return a place as every store takes it: a path, or ``scheme://...`` in small letters.

    Every door that takes the location of a table or a catalog goes through here.

    A local file is a path, in whichever of its forms: ``/x``, ``file:/x``, ``file:///x``.

    Raises:
        OptionError: it is no place, or not one that means the same here as in Spark.

    >>> plain_url("file:/data/x"), plain_url("S3A://lake/x"), plain_url("a/b:c")
    ('/data/x', 's3a://lake/x', 'a/b:c')
    """
    text = text_of(place)
    if not (text.isascii() or is_text(text)):
        hint = "rename the directory: Arrow takes no other names"
        if sys.getfilesystemencoding() != "utf-8":
            hint = "start Python with PYTHONUTF8=1, or in a UTF-8 locale such as LC_ALL=C.UTF-8"
        raise _refused(text, "is not UTF-8", hint)
    if text[0].isspace() and "://" in text:
        raise _refused(text, "begins with a blank", "write the URL without it")
    match = _SCHEME.fullmatch(text)
    if match is None or "/" in match[1]:
        return text
    scheme, rest = match[1].lower(), match[2]
    if len(scheme) == 1:
        if os.name == "nt":
            return text
        raise _refused(text, "is a path of Windows, and this is another system", "pass a path here")
    if scheme == _FILE:
        return _local(text, rest)
    if scheme in _NEVER or not rest.startswith("//") or not rest.strip("/"):
        hint = f"a URL is {scheme}://server/path, a local path ./{_shown(text)}"
        hint = _REMEDIES.get(scheme, hint)
        raise _refused(text, "does not say where the table is", hint)
    return f"{scheme}:{rest}"


def text_of(place: object) -> str:
    """Return what a caller calls a place as text, and not blank; ``None`` is no directory.

    Raises:
        OptionError: it is no text and no path, or there is nothing in it.

    >>> from pathlib import Path
    >>> text_of(Path("lake")), text_of("delta:lake")
    ('lake', 'delta:lake')
    """
    text = os.fspath(place) if isinstance(place, (str, os.PathLike)) else None
    if isinstance(text, str) and text.strip() and "\0" not in text:
        return text
    shown = _shown(text) if isinstance(text, str) else f"{place!r}"[:200]
    message = f"{shown!r} is not a location of a table"
    if not isinstance(text, str):
        message = f"{shown} is not a location of a table: {type(place).__name__}"
    raise OptionError(message, hint="pass a path or a URL", key="uri", value=shown)


def is_url(place: str) -> bool:
    """Tell whether a place that ``plain_url`` gave is a URL, and not a path."""
    return re.match(r"[a-z][a-z0-9+.-]+://", place) is not None


def _local(text: str, rest: str) -> str:
    if rest.startswith("//"):
        server, slash, path = rest.removeprefix("//").partition("/")
        if server not in ("", "localhost"):
            raise _refused(text, "names another machine", "file:///path has three slashes")
        rest = slash + path.lstrip("/")
    if not rest.startswith("/"):
        hint = "use file:/path, or a relative path without file:"
        raise _refused(text, "is not an absolute path", hint)
    return rest


def _refused(text: str, why: str, hint: str) -> OptionError:
    shown = _shown(text)
    return OptionError(f"{shown!r} {why}", hint=hint, key="uri", value=shown)


def _shown(text: str) -> str:
    """Return a text that is no URL without what may be a user and a password in it."""
    return _USER.sub(r"\1***@", text)


def adapter_missing(uri: str, error: Exception) -> MissingDependencyError | OptionError:
    """Say which package brings an adapter for a URL, or that none is known."""
    scheme = uri.partition("://")[0]
    package = _PACKAGES.get(scheme)
    if package is not None:
        message = f"{uri!r} needs the package {package}, which is not installed: {error}"
        hint = f"pip install {package}"
        return MissingDependencyError(message, hint=hint, library=package, extra="")
    if isinstance(error, ImportError):
        message = f"{uri!r} needs a library that is not installed: {error}"
        hint = "install the library that the message names"
        return MissingDependencyError(message, hint=hint, library=error.name or "", extra="")
    message = f"there is no adapter for {scheme}:// ({error})"
    hint = "use a path, s3://, gs:// or abfss://; a custom scheme needs an fsspec adapter"
    return OptionError(message, hint=hint, key="uri", value=uri)


def declared_of(address: StoreAddress) -> frozenset[str]:
    """Return the words declared; raise OptionError for one that is not known."""
    value = dict(address.options).get(DECLARE, "")
    words = frozenset(str(value).replace(",", " ").split())
    if unknown := sorted(words - set(_WORDS)):
        message = f"{DECLARE}={' '.join(unknown)!r} is unknown"
        raise OptionError(message, hint=f"some of {', '.join(_WORDS)}", key=DECLARE, value=value)
    return words


def options_of(address: StoreAddress) -> dict[str, object]:
    """Return the options that are for the file system's library."""
    return {key: value for key, value in address.options if key != DECLARE}
