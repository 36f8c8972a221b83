"""Starts the S3 server and talks to it."""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path

from tests.services.process import Process, Service

_SERVER = Path(__file__).with_name("s3_server.py")


class S3Server(Service):
    """A server with one bucket, for as long as the block lasts."""

    bucket = "bucket"

    def __init__(self, folder: Path) -> None:
        self._process = Process([sys.executable, str(_SERVER)], folder / "s3.log")
        self.url = f"http://127.0.0.1:{self._process.wait_for('serving on')}"
        self.make_bucket(self.bucket)

    def stop(self) -> None:
        """End it."""
        self._process.stop()

    @property
    def options(self) -> dict[str, object]:
        """Storage options that lead to it."""
        return {
            "key": "test",
            "secret": "secret",
            "endpoint_url": self.url,
            "client_kwargs": {"region_name": "us-east-1"},
        }

    def uri(self, name: str) -> str:
        """Give the URI of a table in its bucket."""
        return f"s3://{self.bucket}/{name}"

    def make_bucket(self, name: str) -> None:
        """Make another bucket."""
        self._send("PUT", f"/{name}", b"")

    def fault(self, method: str, part: str, what: str, *, times: int = 1) -> None:
        """Order a fault for the next requests with this method and part of the path."""
        order = {"method": method, "part": part, "what": what, "times": times}
        self._send("POST", "/_faults", json.dumps(order).encode())

    def clear_faults(self) -> None:
        """Take all orders back."""
        self._send("POST", "/_faults", b"")

    def requests(self) -> list[str]:
        """Give the requests since the last call: method and path."""
        done: list[str] = json.loads(self._send("GET", "/_requests", None))
        return done

    def _send(self, method: str, path: str, body: bytes | None) -> bytes:
        request = urllib.request.Request(self.url + path, data=body, method=method)
        with urllib.request.urlopen(request, timeout=60) as reply:
            content: bytes = reply.read()
            return content
