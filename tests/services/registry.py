"""Starts the schema registry of ``registry_server`` and talks to it."""

from __future__ import annotations

import json
import struct
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tests.services.ports import free_port
from tests.services.process import Process, Service

_SERVER = Path(__file__).with_name("registry_server.py")


class RegistryServer(Service):
    """A registry in a process of its own, for as long as the block lasts; it forgets with it."""

    def __init__(self, folder: Path, *options: str, scheme: str = "http") -> None:
        self._folder, self._options, self._scheme = folder, options, scheme
        self._starts = 0
        self._port = str(free_port())
        self.restart()

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"{self._scheme}://127.0.0.1:{self._port}"

    def restart(self) -> None:
        """Start it, on the port that it had."""
        self._starts += 1
        command = [sys.executable, str(_SERVER), "--port", self._port, *self._options]
        self._process = Process(command, self._folder / f"registry-{self._starts}.log")
        self._port = self._process.wait_for("serving on")

    def stop(self) -> None:
        """Kill it: it has nothing to keep."""
        self._process.kill()

    def register(
        self,
        subject: str,
        schema: object,
        *,
        kind: str = "AVRO",
        references: Sequence[tuple[str, str, int]] = (),
    ) -> int:
        """Register a schema; return its number."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        body: dict[str, object] = {"schema": text}
        if kind != "AVRO":
            body["schemaType"] = kind
        if references:
            names = ("name", "subject", "version")
            body["references"] = [dict(zip(names, each, strict=True)) for each in references]
        told = self._send(f"/subjects/{subject}/versions", body)
        assert isinstance(told, dict)
        return int(told["id"])

    def fault(self, *answers: int | str) -> None:
        """Order what the next requests are answered."""
        self._send("/_faults", list(answers))

    def requests(self) -> list[str]:
        """Return the requests since the last call."""
        told = self._send("/_requests", {})
        assert isinstance(told, list)
        return told

    def _send(self, path: str, body: object) -> object:
        request = urllib.request.Request(self.url + path, json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.loads(reply.read())


def framed(number: int, value: bytes) -> bytes:
    """Return a value in Confluent's wire format."""
    return struct.pack(">bI", 0, number) + value
