"""The server of the Iceberg REST endpoint: an address, TLS, and requests of bounded size."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from plait.catalog.rest import Answer, IcebergRest, Request, error_answer
from plait.errors import MissingDependencyError, OptionError

if TYPE_CHECKING:
    import uvicorn
    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

_log = logging.getLogger(__name__)
_THREADS: Final = 8
"""How many requests are answered at once: each may hold the metadata of a table in memory."""
_CONNECTIONS_MAX: Final = 256
_HEADER_BYTES_MAX: Final = 16 << 10
_ANSWER_S: Final = 300.0
"""How long an answer may take, until the client has read all of it."""
_END_S: Final = 10
"""How long answers that are under way may take after the end was asked for."""
_TOKEN_BYTES_MAX: Final = 4_096
_TOKEN_CHARACTERS_MIN: Final = 16

_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a server listens, and what clients must show and are shown."""

    host: str = "127.0.0.1"
    port: int = 8181
    """0 for a free one."""
    token_file: str | None = None
    certificate: str | None = None
    """A file of PEM certificates, that of the server first."""
    key: str | None = None
    """A file with its private key."""
    request_s: float = 10.0
    """How many seconds a client has to send a request; then its connection is closed."""

    def token(self) -> str:
        """Return the token; empty for none.

        Raises:
            OptionError: the file cannot be read, or what it has is no token.
        """
        if self.token_file is None:
            return ""
        try:
            with Path(self.token_file).open("rb") as file:
                body = file.read(_TOKEN_BYTES_MAX + 1)
        except OSError as error:
            raise _refused("token-file", self.token_file, f"cannot be read: {error}") from error
        token = body.decode("ascii", errors="replace").strip()
        readable = token.isascii() and token.isprintable() and " " not in token
        if not (readable and _TOKEN_CHARACTERS_MIN <= len(token) <= _TOKEN_BYTES_MAX):
            problem = f"has no token of {_TOKEN_CHARACTERS_MIN} to {_TOKEN_BYTES_MAX} characters"
            raise _refused("token-file", self.token_file, f"{problem} of ASCII without blanks")
        return token

    def bind(self) -> socket.socket:
        """Open the port.

        Raises:
            OptionError: it cannot be opened, or strangers could reach it without token or TLS.
        """
        if (self.certificate is None) != (self.key is None):
            raise _refused("certificate", self.certificate, "and --key are given together")
        opened = socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind((self.host, self.port))
            self._require_safe(str(opened.getsockname()[0]))
            opened.listen()
        except OSError as error:
            opened.close()
            raise _refused(
                "host", f"{self.host}:{self.port}", f"cannot be used: {error}"
            ) from error
        except OptionError:
            opened.close()
            raise
        return opened

    def _require_safe(self, address: str) -> None:
        if ipaddress.ip_address(address.partition("%")[0]).is_loopback:
            return
        if self.token_file is None or self.certificate is None:
            message = f"{self.host} can be reached from other machines, without a token or TLS"
            hint = "pass --token-file, --certificate and --key, or --host 127.0.0.1"
            raise OptionError(message, hint=hint, key="host", value=self.host)


class CatalogServer:
    """Serves a catalog from a thread, for as long as the block lasts."""

    def __init__(self, endpoint: IcebergRest, listening: Listening) -> None:
        """Open the port.

        Raises:
            OptionError: the address, the certificate or the key cannot be used.
            MissingDependencyError: uvicorn is not installed.
        """
        try:
            import uvicorn  # noqa: PLC0415 - an extra
        except ImportError as error:
            message = "serving a catalog needs the library uvicorn"
            hint = "pip install 'plait[catalog]'"
            raise MissingDependencyError(
                message, hint=hint, library="uvicorn", extra="catalog"
            ) from error
        self._endpoint = endpoint
        self._pool = ThreadPoolExecutor(_THREADS, "plait-catalog")
        config = uvicorn.Config(
            self._answer,
            http=_bounded(listening.request_s),
            loop="asyncio",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="critical",  # what a client does wrong is no news, and our log tells the rest
            access_log=False,
            proxy_headers=False,
            server_header=False,
            h11_max_incomplete_event_size=_HEADER_BYTES_MAX,
            timeout_graceful_shutdown=_END_S,
            ssl_certfile=listening.certificate,
            ssl_keyfile=listening.key,
        )
        self._socket = listening.bind()
        try:
            config.load()
        except OSError as error:  # those of TLS are such, too
            self._socket.close()
            problem = f"or its key cannot be used: {error}"
            raise _refused("certificate", listening.certificate, problem) from error
        self._server: uvicorn.Server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="plait-catalog", daemon=True)
        self.answered = 0
        """How many requests were answered."""
        host, port = self._socket.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{'http' if listening.certificate is None else 'https'}://{shown}:{port}"
        """What clients are given as the URI of the catalog."""

    def __enter__(self) -> Self:
        """Begin to serve."""
        self._thread.start()
        _log.info("the catalog is served at %s", self.url)
        return self

    def __exit__(self, *error: object) -> None:
        """End, once the answers that are under way are sent."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except Exception:  # noqa: BLE001 - nobody waits for what a thread raises
            _log.exception("the server of the catalog ended")

    async def _answer(
        self, scope: MutableMapping[str, Any], receive: _Receive, send: _Send
    ) -> None:
        """Answer a request, as ASGI says; its body is never read."""
        del receive
        asked = [value for name, value in scope["headers"] if name == b"authorization"]
        request = Request(
            scope["method"],
            scope["raw_path"].decode("ascii", errors="replace"),
            scope["query_string"].decode("ascii", errors="replace"),
            asked[0].decode("latin-1") if len(asked) == 1 else "",
        )
        loop = asyncio.get_running_loop()
        answer, body = await loop.run_in_executor(self._pool, self._prepared, request)
        self.answered += 1
        headers = [("Content-Type", "application/json"), ("Cache-Control", "no-store")]
        if answer.status != answer.status.NO_CONTENT:
            headers.append(("Content-Length", str(len(body))))
        if request.method not in ("GET", "HEAD"):
            headers.append(("Connection", "close"))  # its body would be read as a request
        headers += answer.headers.items()
        coded = [(name.lower().encode(), value.encode()) for name, value in headers]
        await send({"type": "http.response.start", "status": answer.status.value, "headers": coded})
        await send({"type": "http.response.body", "body": body})

    def _prepared(self, request: Request) -> tuple[Answer, bytes]:
        answer = self._endpoint.answer(request)
        _log.info("%s %.200r: %d", request.method[:16], request.path, answer.status)
        return answer, answer.body


def _bounded(request_s: float) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with a bound of connections, and of the time that each may take.

    uvicorn has one between requests alone: a client that connects and is silent, sends its headers
    byte by byte, or does not read its answer, would hold a connection for ever.
    """
    from uvicorn.protocols.http.h11_impl import H11Protocol  # noqa: PLC0415 - an extra

    class Bounded(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > _CONNECTIONS_MAX:
                transport.abort()
            else:
                self._wait(request_s, self._end_silent)

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            super().connection_lost(exc)

        def on_response_complete(self) -> None:
            # First: uvicorn may begin with the next request, which is there already.
            self._wait(request_s, self._end_silent)
            super().on_response_complete()

        def send_400_response(self, msg: str) -> None:
            """Answer what is no HTTP in the form of Iceberg's errors."""
            del msg
            refused = error_answer(HTTPStatus.BAD_REQUEST, "BadRequestException", "not HTTP")
            body = refused.body
            lines = [b"HTTP/1.1 400 Bad Request", b"content-type: application/json"]
            lines += [b"content-length: %d" % len(body), b"connection: close", b"", body]
            self.transport.write(b"\r\n".join(lines))
            self.transport.close()

        def _end_silent(self) -> None:
            asked: RequestResponseCycle | None = self.cycle
            if asked is None or asked.response_complete:
                self.transport.abort()
            else:  # it asked; what it gets for it has another bound
                self._wait(_ANSWER_S, self.transport.abort)

        def _wait(self, seconds: float, end: Callable[[], None]) -> None:
            self._stop()
            self._timer = self.loop.call_later(seconds, end)

        def _stop(self) -> None:
            if self._timer is not None:
                self._timer.cancel()

    return Bounded


def _refused(key: str, value: object, problem: str) -> OptionError:
    hint = "see `tablectl serve-catalog --help`"
    return OptionError(f"{value} {problem}", hint=hint, key=key, value=value)
