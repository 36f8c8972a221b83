"""A schema registry: schemas by their numbers, over Confluent's REST API."""

from __future__ import annotations

import base64
import difflib
import http.client
import itertools
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from plait.errors import OptionError, StorageError
from plait.kafka.avro.schema import Node, parse_schema
from plait.ports import Ports

PATIENCE_S: Final = 30.0
"""So long a registry that does not answer is asked again."""
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
_BODY_MAX: Final = 64 << 20
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
_NOT_FOUND: Final = 404
_DENIED: Final = (401, 403)
_AGAIN: Final = (408, 429)
_BROKEN: Final = 500
_ABSENT: Final = range(40400, 40500)
"""Codes in the body: no such subject, version or schema. Another 404 is no registry's."""
_LATE_S: Final = 2.0
"""A replica of the registry may lag behind: so long a number that it does not know is asked for."""
_ABSENT_S: Final = 60.0
"""After this time, it is asked for again."""
_DOUBTS_MAX: Final = 3
"""So many unknown numbers are waited for in that time: bytes that are no Avro have many."""
_ABSENT_MAX: Final = 100_000
_REFERENCES_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class _Absent:
    """A schema that the registry did not have."""

    reason: str
    until_s: float


@dataclass(slots=True)
class Registry:
    """Asks a registry for schemas, and keeps what it was told: a number never changes its schema.

    A registry that does not answer is asked again, and then an error ends the sink: its records
    are read again, and none of them is a dead letter. It belongs to one thread.
    """

    urls: str = field(repr=False)
    """One or more, with commas between them; the next is asked when one does not answer."""
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    """See ``SETTINGS``."""
    ports: Ports = field(default_factory=Ports)
    patience_s: float = PATIENCE_S
    _opener: urllib.request.OpenerDirector = field(init=False)
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
        parts = [_split(url.strip()) for url in self.urls.split(",") if url.strip()]
        if not parts:
            raise _unusable(self.urls)
        self._bases = [base for base, _ in parts]
        self._headers = {"Accept": _ACCEPT, **_authorization(self.settings, parts[0][1])}
        handler = urllib.request.HTTPSHandler(context=_tls(self.settings))
        self._opener = urllib.request.build_opener(handler, _NoRedirects)

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
        told = self._await_schema(number)
        if told is None:
            reason = f"the registry has no schema {number}"
            if len(self._absent) >= _ABSENT_MAX:
                self._absent.clear()
            self._absent[number] = _Absent(reason, now + _ABSENT_S)
            return reason
        self._known[number] = self._parsed(number, told)
        return self._known[number]

    def _await_schema(self, number: int) -> dict[str, object] | None:
        """Ask for a schema; wait a moment for one that is not there, unless many are not."""
        clock = self.ports.clock
        backoff = self.ports.backoff(*_PAUSE_S)
        path = f"/schemas/ids/{number}"
        told, until = self._ask(path), clock.monotonic() + _LATE_S
        self._doubts = [each for each in self._doubts if each > clock.monotonic()]
        if told is not None or len(self._doubts) >= _DOUBTS_MAX:
            return told
        self._doubts.append(clock.monotonic() + _ABSENT_S)
        while told is None and (left := until - clock.monotonic()) > 0:
            backoff.pause(left)
            told = self._ask(path)
        return told

    def _parsed(self, number: int, told: Mapping[str, object]) -> Node | str:
        kind = told.get("schemaType", "AVRO")
        if kind != "AVRO":
            return f"schema {number} is {kind}, and not Avro"
        try:
            references = list(self._references(told, {}))
            return parse_schema(str(told["schema"]), references)
        except (KeyError, TypeError, ValueError) as error:
            return f"schema {number}: {error}"

    def _references(
        self, told: Mapping[str, object], seen: dict[tuple[str, int], None]
    ) -> Iterator[str]:
        """Return the schemas that one refers to, those that others need first."""
        listed = told.get("references") or ()
        for each in listed if isinstance(listed, list) else ():
            place = (str(each["subject"]), int(each["version"]))
            if place in seen:
                continue
            seen[place] = None
            found = self._ask(f"/subjects/{quote(place[0], safe='')}/versions/{place[1]}")
            if found is None or len(seen) > _REFERENCES_MAX:
                message = f"the registry has no version {place[1]} of {place[0]!r}"
                raise ValueError(message)
            yield from self._references(found, seen)
            yield str(found["schema"])

    # --- HTTP ------------------------------------------------------------------------------

    def _ask(self, path: str) -> dict[str, object] | None:
        """Return what the registry answers; None if it does not have it.

        Raises:
            StorageError: it does not answer within the time, or refuses to.
        """
        clock = self.ports.clock
        until = clock.monotonic() + self.patience_s
        backoff = self.ports.backoff(*_PAUSE_S)
        for base in itertools.cycle(self._bases):
            try:
                return self._answer(base + path)
            except StorageError:
                raise
            except (OSError, ValueError, http.client.HTTPException) as error:
                last = error
            if base != self._bases[-1]:
                continue
            left = until - clock.monotonic()
            if left <= 0:
                break
            backoff.pause(left)
        message = f"the schema registry {self._bases[0]} does not answer: {last}"
        hint = "see whether it is up; the sink goes on where it was when it starts again"
        raise StorageError(message, hint=hint) from last

    def _answer(self, url: str) -> dict[str, object] | None:
        """Ask once; raise OSError or ValueError if another time may go better."""
        request = urllib.request.Request(url, headers=self._headers)  # noqa: S310 - http or https
        try:
            with self._opener.open(request, timeout=_ASK_S) as reply:
                told = json.loads(reply.read(_BODY_MAX))
        except urllib.error.HTTPError as error:
            code = error.code
            body = error.read(1 << 16)
            error.close()
            if code == _NOT_FOUND and _code_of(body) in _ABSENT:
                return None
            if code in _AGAIN or code >= _BROKEN:
                raise
            message = f"the schema registry refuses {url}: {code} {error.reason}"
            hint = "see the URL of --registry"
            if code in _DENIED:
                hint = "see basic.auth.user.info or bearer.auth.token of --registry-client"
            raise StorageError(message, hint=hint, status=code) from error
        if not (isinstance(told, dict) and isinstance(told.get("schema"), str)):
            message = f"{url} answers with no schema"
            raise ValueError(message)  # noqa: TRY004 - as a body that is no JSON, of a proxy
        return told


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Another place gets no password."""

    def redirect_request(self, *_: object) -> None:
        """Follow nothing: the answer is an error then."""


def _code_of(body: bytes) -> object:
    try:
        told = json.loads(body)
    except ValueError:
        return None
    return told.get("error_code") if isinstance(told, dict) else None


def _split(url: str) -> tuple[str, str]:
    """Return a URL without the user in it, and the user with the password."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError as error:
        raise _unusable(url) from error
    if parts.scheme not in ("http", "https") or not host:
        raise _unusable(url)
    user, _, place = parts.netloc.rpartition("@")
    base = urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
    return base, unquote(user)


def _unusable(url: str) -> OptionError:
    message = f"{url!r} is no URL of a schema registry"
    return OptionError(message, hint="pass http://HOST:PORT", key="registry", value=url)


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
