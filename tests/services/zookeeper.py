"""ZooKeeper servers for tests: one, or an ensemble of three whose members can be killed."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from plait.spark.java import require_java
from tests.services.jars import find_jars
from tests.services.ports import free_port
from tests.services.process import Process, Service

_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_READY_S = 300
_CONFIG = """\
dataDir={data}
clientPort={port}
clientPortAddress=127.0.0.1
tickTime=500
initLimit=20
syncLimit=10
minSessionTimeout=1000
maxSessionTimeout=60000
maxClientCnxns=0
preAllocSize=1024
4lw.commands.whitelist=*
"""
_FLAGS = (
    "-Xmx96m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dzookeeper.admin.enableServer=false",  # else it takes port 8080
    "-Dzookeeper.forceSync=no",  # no power cut is tested here
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


@dataclass(frozen=True, slots=True)
class Address:
    """The ports of one server: for clients, for followers, for elections."""

    client: int
    follow: int
    elect: int

    @classmethod
    def free(cls) -> Address:
        """Take three ports that nobody has at the moment."""
        return cls(free_port(), free_port(), free_port())


class Server:
    """One server, alone or a member of an ensemble."""

    def __init__(self, folder: Path, number: int, members: Sequence[Address]) -> None:
        self._folder, self._address = folder / f"server-{number}", members[number]
        self._log = folder / f"server-{number}.log"
        data = self._folder / "data"
        data.mkdir(parents=True)
        lines = [_CONFIG.format(data=data, port=self._address.client)]
        if len(members) > 1:
            (data / "myid").write_text(str(number))
            lines += [f"server.{n}=127.0.0.1:{m.follow}:{m.elect}\n" for n, m in enumerate(members)]
        (self._folder / "zoo.cfg").write_text("".join(lines))
        self._process: Process | None = None

    @property
    def host(self) -> str:
        """Where clients find it."""
        return f"127.0.0.1:{self._address.client}"

    def start(self) -> None:
        """Start it; also again, on the same port and data."""
        jars = find_jars("zookeeper")
        if jars is None:
            message = "the jars of zookeeper were not resolved"
            raise FileNotFoundError(message)
        java = str(require_java(os.environ).program)
        command = [java, *_FLAGS, "-cp", f"{jars}/*", _MAIN, str(self._folder / "zoo.cfg")]
        self._process = Process(command, self._log)

    def wait_ready(self) -> str:
        """Wait until it serves; give its role: standalone, leader or follower."""
        deadline = time.monotonic() + _READY_S
        while time.monotonic() < deadline:
            role = self.role()
            if role:
                return role
            time.sleep(0.05)
        message = f"no server on {self.host}:\n{self._log.read_text(errors='replace')[-4000:]}"
        raise RuntimeError(message)

    def role(self) -> str:
        """Ask for its role; empty while it has none."""
        try:
            with socket.create_connection(("127.0.0.1", self._address.client), 2) as connection:
                connection.sendall(b"srvr")
                connection.settimeout(2)
                answer = b""
                while part := connection.recv(4096):
                    answer += part
        except OSError:
            return ""
        lines = answer.decode(errors="replace").splitlines()
        return next((line[6:] for line in lines if line.startswith("Mode: ")), "")

    def kill(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()

    def pause(self) -> None:
        """Stop it in its tracks."""
        if self._process is not None:
            self._process.pause()

    def resume(self) -> None:
        """Let it go on."""
        if self._process is not None:
            self._process.resume()


class ZooKeeper(Service):
    """So many servers that know each other, for as long as the block lasts."""

    def __init__(self, folder: Path, *, members: int = 1) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        addresses = [Address.free() for _ in range(members)]
        self.servers = [Server(folder, number, addresses) for number in range(members)]
        for server in self.servers:
            server.start()
        try:
            for server in self.servers:
                server.wait_ready()
        except BaseException:
            self.stop()
            raise

    @property
    def hosts(self) -> str:
        """Every server, as it stands in the text of a lock."""
        return ",".join(server.host for server in self.servers)

    @property
    def leader(self) -> Server:
        """The server that leads."""
        return next(server for server in self.servers if server.role() == "leader")

    def lock(self, path: str, *, session: str = "2s") -> str:
        """Give the text of a lock below a path."""
        return f"zookeeper://{self.hosts}/{path}?session={session}"

    def stop(self) -> None:
        """Kill every server: their data go with the test."""
        for server in self.servers:
            server.kill()
