"""What the Iceberg REST endpoint answers: names and metadata, to those who may ask (RFC 0047).

Everything in a request is a stranger's: its names are parsed by the catalog, and an answer tells
nothing about the machine. Nothing here knows how requests come in.
"""

from __future__ import annotations

import hmac
import json
import logging
import threading
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs, unquote
from weakref import WeakValueDictionary

from plait.catalog.catalog import Catalog
from plait.catalog.names import TableName, parse_namespace
from plait.errors import NamespaceNotFoundError, OptionError, TableError, TableNotFoundError
from plait.interop.iceberg import TARGET
from plait.interop.publication import follow, newest_metadata
from plait.table import handle_of

_log = logging.getLogger(__name__)
TARGET_BYTES_MAX: Final = 4_096
"""The longest path and query of a request."""
_PAGE_MAX: Final = 1_000
_READS: Final = ("GET", "HEAD")
_ENDPOINTS: Final = (
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
)


@dataclass(frozen=True, slots=True)
class Request:
    """A request, as far as the endpoint looks at it."""

    method: str
    path: str
    """As it was sent, with its escapes."""
    query: str = ""
    authorization: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, and what is said as JSON; no body if that is None."""

    status: HTTPStatus
    said: object = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def body(self) -> bytes:
        """The bytes of the body."""
        return b"" if self.said is None else json.dumps(self.said).encode()


class _RefusedRequestError(Exception):
    """A request gets an error as its answer."""

    def __init__(self, status: HTTPStatus, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


class _Turn:
    """The turn of those who publish one table; a lock itself cannot be forgotten with its users."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class IcebergRest:
    """Answers requests about the tables of a catalog; threads may share it."""

    def __init__(self, catalog: Catalog, *, token: str = "", publish: bool = True) -> None:
        """Take what it answers about.

        Args:
            catalog: whose names are served.
            token: what clients must show; everybody may ask if it is empty.
            publish: publish versions that are not published yet, before a table is answered.
        """
        self._catalog, self._token, self._publish = catalog, token.encode(), publish
        self._publishing: WeakValueDictionary[str, _Turn] = WeakValueDictionary()

    def answer(self, request: Request) -> Answer:
        """Answer a request. It raises nothing: what fails is logged, and told as an error."""
        try:
            if not self._may_ask(request.authorization):
                answer = error_answer(
                    HTTPStatus.UNAUTHORIZED, "NotAuthorizedException", "no valid token"
                )
                return Answer(answer.status, answer.said, {"WWW-Authenticate": "Bearer"})
            return self._route(request)
        except _RefusedRequestError as refused:
            return error_answer(refused.status, refused.kind, str(refused))
        except TableError as error:
            _log.warning("a request was not answered: %s", error)
            message = "the table cannot be read now; the log of the server says why"
            return error_answer(
                HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailableException", message
            )
        except Exception:  # noqa: BLE001 - a client is told nothing, the log everything
            _log.exception("a request was not answered")
            message = "the server failed; its log says why"
            return error_answer(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalServerError", message)

    def _may_ask(self, authorization: str) -> bool:
        kind, _, shown = authorization.partition(" ")
        told = shown.strip().encode(errors="replace")
        same = hmac.compare_digest(told, self._token)
        return not self._token or (same and kind.lower() == "bearer")

    def _route(self, request: Request) -> Answer:
        if request.method not in _READS:
            message = "this catalog is read-only: change tables and names with Plait"
            raise _RefusedRequestError(
                HTTPStatus.NOT_ACCEPTABLE, "UnsupportedOperationException", message
            )
        if len(request.path) + len(request.query) > TARGET_BYTES_MAX:
            message = f"a path and its query have {TARGET_BYTES_MAX} bytes at most"
            raise _RefusedRequestError(
                HTTPStatus.REQUEST_URI_TOO_LONG, "BadRequestException", message
            )
        said: object
        match request.path.split("/")[1:]:
            case ["v1", "config"]:
                said = {"defaults": {}, "overrides": {}, "endpoints": _ENDPOINTS}
            case ["v1", "namespaces"]:
                said = self._namespaces(_query(request.query))
            case ["v1", "namespaces", name]:
                said = {"namespace": [self._namespace(name)], "properties": {}}
            case ["v1", "namespaces", name, "tables"] if request.method == "GET":
                said = self._tables(self._namespace(name), _query(request.query))
            case ["v1", "namespaces", name, "tables", table]:
                if request.method == "HEAD":
                    self._location(name, table)
                    return Answer(HTTPStatus.NO_CONTENT)
                said = self._table(name, table)
            case _:
                message = "there is no such endpoint; GET /v1/config lists them"
                raise _RefusedRequestError(HTTPStatus.NOT_FOUND, "NotFoundException", message)
        if request.method == "HEAD":
            return Answer(HTTPStatus.NO_CONTENT)
        return Answer(HTTPStatus.OK, said)

    # --- namespaces --------------------------------------------------------------------------

    def _namespaces(self, query: Mapping[str, str]) -> object:
        if query.get("parent"):
            self._namespace(query["parent"])
            return {"namespaces": []}  # there are none inside of another
        names, more = _page(self._catalog.namespaces(), query)
        return {"namespaces": [[name] for name in names], **more}

    def _namespace(self, escaped: str) -> str:
        """Return the name of a namespace that exists."""
        try:
            name = parse_namespace(_unescaped(escaped))
            if name in self._catalog.namespaces():
                return name
        except OptionError:
            _log.debug("no namespace has such a name: %.200r", escaped)
        raise _no_namespace()

    # --- tables ------------------------------------------------------------------------------

    def _tables(self, namespace: str, query: Mapping[str, str]) -> object:
        try:
            found = self._catalog.tables(namespace)
        except NamespaceNotFoundError as error:  # dropped meanwhile
            raise _no_namespace() from error
        names, more = _page([TableName.parse(each.name).table for each in found], query)
        return {"identifiers": [{"namespace": [namespace], "name": each} for each in names], **more}

    def _location(self, namespace: str, table: str) -> TableName:
        """Return the name of a table that exists."""
        try:
            name = TableName.parse(f"{_unescaped(namespace)}.{_unescaped(table)}")
            self._catalog.location(str(name))
        except NamespaceNotFoundError as error:
            raise _no_namespace() from error
        except (OptionError, TableNotFoundError) as error:
            raise _no_table() from error
        return name

    def _table(self, namespace: str, table: str) -> object:
        name = self._location(namespace, table)
        try:
            handle = handle_of(self._catalog.table(str(name)))
            state = handle.cache.refresh()
        except TableNotFoundError as error:  # dropped meanwhile
            raise _no_table() from error
        if TARGET not in state.table.published:
            message = (
                f"{name} is not published as Iceberg: set its property publish=iceberg, "
                "with `tablectl set` and the location that `tablectl list` shows"
            )
            raise _RefusedRequestError(HTTPStatus.BAD_REQUEST, "BadRequestException", message)
        if self._publish:
            # Who waited here finds what the one before has published; so it is published once.
            turn = self._publishing.setdefault(handle.identity, _Turn())
            with turn.lock:
                handle.cache.refresh()
                follow(handle, deferred=True)
        found = newest_metadata(handle)
        if found is None:
            message = f"no version of {name} is published yet; run `tablectl publish`"
            raise _RefusedRequestError(
                HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailableException", message
            )
        location, metadata = found
        return {"metadata-location": location, "metadata": metadata, "config": {}}


def _query(text: str) -> dict[str, str]:
    """Read the parameters of a request; the first of each name counts."""
    return {key: values[0] for key, values in parse_qs(text, keep_blank_values=True).items()}


def _unescaped(text: str) -> str:
    """Read a part of a path, once: what is still escaped then is no name."""
    return unicodedata.normalize("NFC", unquote(text))


def _page(names: Sequence[str], query: Mapping[str, str]) -> tuple[Sequence[str], dict[str, str]]:
    """Return a page of sorted names, and the token of the next one if more are left.

    A client that names no page gets everything.
    """
    if not {"pageToken", "pageSize"} & set(query):
        return names, {}
    size = query.get("pageSize") or str(_PAGE_MAX)
    if not (size.isascii() and size.isdigit() and len(size) < len(str(1 << 32)) and int(size)):
        message = "pageSize is a number from 1 on"
        raise _RefusedRequestError(HTTPStatus.BAD_REQUEST, "BadRequestException", message)
    left = [name for name in names if name > query.get("pageToken", "")]
    page = left[: min(int(size), _PAGE_MAX)]
    return page, {"next-page-token": page[-1]} if len(page) < len(left) else {}


def _no_namespace() -> _RefusedRequestError:
    message = "there is no such namespace"
    return _RefusedRequestError(HTTPStatus.NOT_FOUND, "NoSuchNamespaceException", message)


def _no_table() -> _RefusedRequestError:
    message = "there is no such table"
    return _RefusedRequestError(HTTPStatus.NOT_FOUND, "NoSuchTableException", message)


def error_answer(status: HTTPStatus, kind: str, message: str) -> Answer:
    """Return an error in the form that Iceberg's specification says."""
    return Answer(status, {"error": {"message": message, "type": kind, "code": status.value}})
