"""The text of a ZooKeeper lock: ``zookeeper://h1:2181,h2:2181/path?session=10s&slots=lent``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl

from plait.errors import OptionError, redacted_url, without_secrets
from plait.model.contract import Option

SCHEME = "zookeeper"
EXTERNAL_SLOTS = "slots=lent"
_EXAMPLE = "for example zookeeper://h1:2181,h2:2181/plait"
_HOST = re.compile(r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::(\d{1,5}))?", re.ASCII)
_STEP = re.compile(r"[A-Za-z0-9_.=@+-]+", re.ASCII)
_SESSION = Option("session", "time", "10s", "silence after which a holder is dead", 0.5)
_SESSION_S_MAX = 3600.0
_PORT, _PORT_MAX, _TEXT_MAX = 2181, 65535, 1000


@dataclass(frozen=True, slots=True)
class Address:
    """Where the locks of a table are, and how."""

    hosts: str
    """Hosts with ports, in the given order, separated by commas."""
    path: str
    """Absolute path; the nodes of tables lie below it."""
    session_s: float
    external_slots: bool
    """Whether the slots of the table are decided there too."""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read the text of a lock; raise OptionError for what is not one.

        >>> Address.parse("zookeeper://h1,h2:2182/plait?session=4s")
        Address(hosts='h1:2181,h2:2182', path='/plait', session_s=4.0, external_slots=False)
        """
        scheme, mark, rest = text.partition("://")
        if scheme != SCHEME or not mark or len(text) > _TEXT_MAX:
            raise _refused(text, "it does not begin with zookeeper://")
        place, _, query = rest.partition("?")
        hosts, slash, path = place.partition("/")
        options = _options(text, query)
        session_s = _SESSION.parse(options.pop("session", _SESSION.default))
        if session_s > _SESSION_S_MAX:
            raise _refused(text, f"a session of {session_s:g} s is too long")
        lent = options.pop("slots", "")
        if options or lent not in ("", "lent"):
            raise _refused(text, "after the ? may stand session=<time> and slots=lent")
        return cls(_hosts(text, hosts), _path(text, slash + path), session_s, lent == "lent")


def with_external_slots(text: str) -> str:
    """Return the text of the same lock with lent slots.

    >>> with_external_slots("zookeeper://h1:2181/plait")
    'zookeeper://h1:2181/plait?slots=lent'
    """
    if Address.parse(text).external_slots:
        return text
    return f"{text}{'&' if '?' in text else '?'}{EXTERNAL_SLOTS}"


def _options(text: str, query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:  # it shows the text
        raise _refused(text, "the text after the ? is not key=value") from None
    options = dict(pairs)
    if len(options) < len(pairs):
        raise _refused(text, "a key occurs twice after the ?")
    return options


def _hosts(text: str, hosts: str) -> str:
    named = []
    for host in hosts.split(","):
        match = _HOST.fullmatch(host)
        port = int(match[1] or _PORT) if match else 0
        if match is None or not 0 < port <= _PORT_MAX:
            raise _refused(text, f"{without_secrets(repr(host), text)} is not host:port")
        named.append(host if match[1] else f"{host}:{port}")
    if len(set(named)) < len(named):
        raise _refused(text, "a host is named twice")
    return ",".join(named)


def _path(text: str, path: str) -> str:
    steps = path.rstrip("/").split("/")[1:]
    bad = [step for step in steps if not _STEP.fullmatch(step) or step in (".", "..")]
    if not steps or bad:
        raise _refused(text, "the path below which its locks lie is missing or not plain")
    if steps[0] == "zookeeper":
        raise _refused(text, "/zookeeper is the service's own")
    return "/" + "/".join(steps)


def _refused(text: str, why: str) -> OptionError:
    shown = redacted_url(text)
    message = f"lock={shown[:200]!r} cannot be used: {why}"
    return OptionError(message, hint=_EXAMPLE, key="lock", value=shown)
