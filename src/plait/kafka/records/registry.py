"""A schema registry: schemas by their numbers, over Confluent's REST API.

Why not the client of ``confluent_kafka.schema_registry`` (2.16): its time-out is for each read, so
an answer that drips a byte a second has no end. It holds a whole answer in memory, whatever its
size, and parses it however deep it is. RFC 0019 has the list, measured. What is asked here are two
paths. The bounds are the point.
"""

from __future__ import annotations

import base64
import difflib
import http.client
import io
import itertools
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from plait.errors import OptionError, StorageError, redacted_url
from plait.kafka.records.avro.schema import Node, parse_schema
from plait.model.document import load_json
from plait.ports import Clock, Ports

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

PATIENCE_S: Final = 30.0
"""Seconds for which a registry that does not answer is asked again."""
SETTINGS: Final = (
    "basic.auth.user.info",
    "bearer.auth.token",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
)
"""What a client can be told; the names are Confluent's."""
_ASK_S: Final = 10.0
_PAUSE_S: Final = (0.1, 3.0)
_BODY_MAX: Final = 32 << 20
"""Bytes of a schema with all that it refers to: more is not read."""
_CHUNK: Final = 64 << 10
_SHOWN: Final = 300
_VERSION_MAX: Final = (1 << 31) - 1
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
_NOT_FOUND: Final = 404
_DENIED: Final = (401, 403)
_AGAIN: Final = (408, 429)
_BROKEN: Final = 500
_ABSENT: Final = range(40400, 40500)
"""Codes in the body: no such subject, version or schema. Another 404 is no registry's."""
_LATE_S: Final = 2.0
"""Seconds for which an unknown schema id is asked for: a replica of the registry may lag."""
_ABSENT_S: Final = 60.0
"""Seconds after which an unknown schema id is asked for again."""
_DOUBTS_MAX: Final = 3
"""Maximum number of unknown schema ids that are waited for in that time: corrupt records
name many."""
_ABSENT_MAX: Final = 100_000
_REFERENCES_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class _Absent:
    """A schema that the registry did not have."""

    reason: str
    until_s: float


@dataclass(slots=True)
class _Search:
    """What the search for one schema may cost, with all that it refers to."""

    until_s: float
    bytes_left: int = _BODY_MAX


@dataclass(slots=True)
class Registry:
    """Asks a registry for schemas, and keeps what it was told: a number never changes its schema.

    A registry that does not answer is asked again, and then an error ends the sink: its records
    are read again, and none of them is a dead letter. Whatever it does, a search ends after its
    patience, however slowly bytes come, and holds no more than ``_BODY_MAX`` bytes. It belongs to
    one thread.
    """

    urls: str = field(repr=False)
    """One or more, with commas between them; the next is asked when one does not answer."""
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of the registry; see ``SETTINGS``."""
    ports: Ports = field(default_factory=Ports)
    patience_s: float = PATIENCE_S
    _tls: ssl.SSLContext = field(init=False, repr=False)
    _headers: dict[str, str] = field(init=False, repr=False)
    _bases: list[str] = field(init=False)
    _known: dict[int, Node | str] = field(default_factory=dict)
    _absent: dict[int, _Absent] = field(default_factory=dict)
    _doubts: list[float] = field(default_factory=list)
    """Until when numbers are remembered that were waited for."""

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            OptionError: a setting is unknown or does not work, or a URL is none.
        """
        _require_known(self.settings)
        urls = [url.strip() for url in self.urls.split(",") if url.strip()]
        parts = [found for url in urls if (found := _split(url)) is not None]
        if not parts or len(parts) < len(urls):
            raise _unusable(self.urls)
        self._bases = [base for base, _ in parts]
        self._headers = {"Accept": _ACCEPT, **_authorization(self.settings, parts[0][1])}
        self._tls = _tls(self.settings)

    def find(self, number: int) -> Node | str:
        """Return a schema, or say why there is none.

        Raises:
            StorageError: the registry does not answer, or refuses to.
        """
        found = self._known.get(number)
        if found is not None:
            return found
        now = self.ports.clock.monotonic()
        absent = self._absent.get(number)
        if absent is not None and now < absent.until_s:
            return absent.reason
        search = _Search(now + self.patience_s)
        answer = self._await_schema(number, search)
        if answer is None:
            reason = f"the registry has no schema {number}"
            if len(self._absent) >= _ABSENT_MAX:
                self._absent.clear()
            self._absent[number] = _Absent(reason, now + _ABSENT_S)
            return reason
        self._known[number] = self._parsed(number, answer, search)
        return self._known[number]

    def _await_schema(self, number: int, search: _Search) -> dict[str, object] | None:
        """Ask for a schema; wait a moment for one that is not there, unless many are not."""
        clock = self.ports.clock
        backoff = self.ports.backoff(*_PAUSE_S)
        path = f"/schemas/ids/{number}"
        answer, until = self._ask(path, search), clock.monotonic() + _LATE_S
        self._doubts = [each for each in self._doubts if each > clock.monotonic()]
        if answer is not None or len(self._doubts) >= _DOUBTS_MAX:
            return answer
        self._doubts.append(clock.monotonic() + _ABSENT_S)
        while answer is None and (left := until - clock.monotonic()) > 0:
            backoff.pause(left)
            answer = self._ask(path, _Search(clock.monotonic() + self.patience_s))
        return answer

    def _parsed(self, number: int, answer: Mapping[str, object], search: _Search) -> Node | str:
        kind = answer.get("schemaType", "AVRO")
        if kind != "AVRO":
            return f"schema {number} is {str(kind)[:_SHOWN]}, and not Avro"
        try:
            references = list(self._references(answer, {}, search))
            return parse_schema(str(answer["schema"]), references)
        except ValueError as error:
            return f"schema {number}: {str(error)[:_SHOWN]}"

    def _references(
        self, answer: Mapping[str, object], seen: dict[tuple[str, int], None], search: _Search
    ) -> Iterator[str]:
        """Return the schemas that one refers to, those that others need first."""
        for place in _places(answer):
            if place in seen:
                continue
            seen[place] = None
            if len(seen) > _REFERENCES_MAX:
                raise ValueError(f"it refers to more than {_REFERENCES_MAX} others")
            path = f"/subjects/{quote(place[0], safe='')}/versions/{place[1]}"
            found = self._ask(path, search)
            if found is None:
                raise ValueError(f"the registry has no version {place[1]} of {place[0][:_SHOWN]!r}")
            yield from self._references(found, seen, search)
            yield str(found["schema"])

    # --- HTTP ------------------------------------------------------------------------------

    def _ask(self, path: str, search: _Search) -> dict[str, object] | None:
        """Return what the registry answers; None if it does not have it.

        Raises:
            StorageError: it does not answer within the time, or refuses to.
        """
        clock = self.ports.clock
        backoff = self.ports.backoff(*_PAUSE_S)
        last: Exception = TimeoutError("the time is over")
        asked = False
        for base in itertools.cycle(self._bases):
            left = search.until_s - clock.monotonic()
            if left < (_PAUSE_S[0] if asked else 0):
                break  # the reason of the last answer says more than that there is no time
            asked = True
            try:
                return self._answer(base + path, search, min(_ASK_S, left))
            except StorageError:
                raise
            except (OSError, ValueError, http.client.HTTPException) as error:
                last = error
            left = search.until_s - clock.monotonic()
            if base == self._bases[-1] and left > 0:
                backoff.pause(left)
        why = str(last)[:_SHOWN]
        message = f"the schema registry {self._bases[0]} does not answer: {why}"
        hint = "see whether it is up; the sink goes on where it was when it starts again"
        raise StorageError(message, hint=hint) from last

    def _answer(self, url: str, search: _Search, within_s: float) -> dict[str, object] | None:
        """Ask once; raise OSError or ValueError if another time may go better."""
        request = urllib.request.Request(url, headers=self._headers)  # noqa: S310 - http or https
        end = _End(self.ports.clock, self.ports.clock.monotonic() + within_s)
        opener = urllib.request.build_opener(_Plain(end), _Secure(end, self._tls), _NoRedirects)
        try:
            with opener.open(request, timeout=within_s) as reply:
                body = _body_of(reply, search.bytes_left)
        except urllib.error.HTTPError as error:
            code = error.code
            with error:
                body = _body_of(error, min(search.bytes_left, 1 << 16))
            if code == _NOT_FOUND and _code_of(body) in _ABSENT:
                return None
            if code in _AGAIN or code >= _BROKEN:
                raise
            message = f"the schema registry refuses {url}: {code} {str(error.reason)[:_SHOWN]}"
            hint = "see the URL of --registry"
            if code in _DENIED:
                hint = "see basic.auth.user.info or bearer.auth.token of --registry-client"
            raise StorageError(message, hint=hint, status=code) from error
        search.bytes_left -= len(body)
        answer = load_json(body, bytes_max=_BODY_MAX)
        if not (isinstance(answer, dict) and isinstance(answer.get("schema"), str)):
            message = f"{url} answers with no schema"
            raise ValueError(message)  # noqa: TRY004 - as a body that is no JSON, of a proxy
        return answer


def _places(answer: Mapping[str, object]) -> Iterator[tuple[str, int]]:
    """Return the subjects and versions that a schema refers to; raise ValueError for nonsense."""
    listed = answer.get("references") or []
    for each in listed if isinstance(listed, list) else [listed]:
        subject, version = (
            (each.get("subject"), each.get("version")) if isinstance(each, dict) else (None, None)
        )
        sound = isinstance(subject, str) and type(version) is int and 0 < version <= _VERSION_MAX
        if not sound or len(str(subject).encode("utf-8", "replace")) > _CHUNK:
            raise ValueError(f"it refers to what is no version of a subject: {each!r:.80}")
        yield str(subject), int(str(version))


class _Readable(Protocol):
    def read(self, amount: int, /) -> bytes: ...


def _body_of(reply: _Readable, most: int) -> bytes:
    """Read an answer; raise ValueError once it is too long."""
    found = bytearray()
    while chunk := reply.read(_CHUNK):
        found += chunk
        if len(found) > most:
            raise ValueError(f"the answer has more than {most} bytes")
    return bytes(found)


# --- an end for a whole answer: a time-out of a socket is one for each of its bytes --------------


@dataclass(frozen=True, slots=True)
class _End:
    """When an answer must be there."""

    clock: Clock
    at_s: float

    def left_s(self) -> float:
        """Return the seconds that are left; raise TimeoutError if there are none."""
        left = self.at_s - self.clock.monotonic()
        if left <= 0:
            raise TimeoutError("the answer takes too long")
        return left


class _Bytes(io.RawIOBase):
    """What a socket receives, until the end."""

    def __init__(self, wire: socket.socket, end: _End) -> None:
        super().__init__()
        self._wire, self._end = wire, end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        self._wire.settimeout(self._end.left_s())
        return self._wire.recv_into(buffer)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._wire.close()


class _Wire:
    """A socket as a connection uses it, which sends and receives until the end."""

    def __init__(self, wire: socket.socket, end: _End) -> None:
        self._wire, self._end, self._lent = wire, end, False

    def sendall(self, data: bytes) -> None:
        self._wire.settimeout(self._end.left_s())
        self._wire.sendall(data)

    def makefile(self, _: str) -> io.BufferedReader:
        self._lent = True
        return io.BufferedReader(_Bytes(self._wire, self._end))

    def close(self) -> None:
        """Close the socket, unless an answer is read from it: then that one closes it."""
        if not self._lent:
            self._wire.close()


class _Plain(urllib.request.HTTPHandler):
    """Opens connections that have an end."""

    def __init__(self, end: _End) -> None:
        super().__init__()
        self._end = end

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        end = self._end

        class Connection(http.client.HTTPConnection):
            def connect(self) -> None:
                super().connect()
                self.sock = _Wire(self.sock, end)

        return self.do_open(Connection, request)


class _Secure(urllib.request.HTTPSHandler):
    """The same under TLS; a handshake has one time-out for all of it."""

    def __init__(self, end: _End, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._end, self._tls = end, context

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        end = self._end

        class Connection(http.client.HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                self.sock = _Wire(self.sock, end)

        return self.do_open(Connection, request, context=self._tls)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Another place gets no password."""

    def redirect_request(self, *_: object) -> None:
        """Follow nothing: the answer is an error then."""


def _code_of(body: bytes) -> int | None:
    try:
        answer = load_json(body, bytes_max=_BODY_MAX)
    except ValueError:
        return None
    code = answer.get("error_code") if isinstance(answer, dict) else None
    return code if isinstance(code, int) else None


def _split(url: str) -> tuple[str, str] | None:
    """Return a URL without the user in it, and the user with the password; None: it is no URL.

    An ``@`` after the server belongs to a password that is not percent-encoded. What stands before
    it would be taken for the server, and be shown.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:  # its text has what it takes for the port, which may be a password
        return None
    if parts.scheme not in ("http", "https") or not host or port == 0:
        return None
    if "@" in url.partition("://")[2][len(parts.netloc) :] or any(c.isspace() for c in url):
        return None
    user, _, place = parts.netloc.rpartition("@")
    base = urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
    return base, unquote(user)


def _unusable(urls: str) -> OptionError:
    shown = redacted_url(urls)
    message = f"{shown!r} is no URL of a schema registry"
    hint = "pass http://HOST:PORT; percent-encode what is special in a user or a password"
    return OptionError(message, hint=hint, key="registry", value=shown)


def _require_known(settings: Mapping[str, str]) -> None:
    for key in settings:
        if key not in SETTINGS:
            near = difflib.get_close_matches(key, SETTINGS, n=1)
            message = f"unknown setting {key!r} of a client of the schema registry"
            hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(SETTINGS)}"
            raise OptionError(message, hint=hint, key="registry_client", value=key)


def _authorization(settings: Mapping[str, str], user: str) -> dict[str, str]:
    user = settings.get("basic.auth.user.info", user)
    if user:
        return {"Authorization": "Basic " + base64.b64encode(user.encode()).decode()}
    token = settings.get("bearer.auth.token")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _tls(settings: Mapping[str, str]) -> ssl.SSLContext:
    authority = settings.get("ssl.ca.location")
    certificate = settings.get("ssl.certificate.location")
    try:
        context = ssl.create_default_context(cafile=authority)
        if certificate:
            key, password = settings.get("ssl.key.location"), settings.get("ssl.key.password")
            context.load_cert_chain(certificate, key, password)
    except OSError as error:
        files = ", ".join(filter(None, (authority, certificate)))
        message = f"the files for TLS to the schema registry cannot be used ({files}): {error}"
        hint = "see ssl.ca.location, ssl.certificate.location and ssl.key.location"
        raise OptionError(message, hint=hint, key="registry_client", value=files) from error
    return context
