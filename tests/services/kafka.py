"""A Kafka broker for tests (KRaft, one node), which can be killed and comes back on its port."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from plait.spark.java import require_java
from tests.services.certificate import write_certificate
from tests.services.jars import HERE, find_jars
from tests.services.ports import free_port
from tests.services.process import Process, Service

_CLUSTER = "cGxhaXQtdGVzdC1jbHVzdA"
"""Any 16 bytes, as Kafka spells them."""
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_USER, _PASSWORD = "sink", "not-a-secret"
LIMITED = "limited"
"""A user who may do what ACLs allow; the other users may do everything."""
_STARTS = 3
"""A port may be taken between its choice and the start."""
_CONFIG = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{secure},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{secure}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location={folder}/broker.pem
listener.name.secure.sasl.enabled.mechanisms=PLAIN
listener.name.secure.plain.sasl.jaas.config={login} required \
  user_{user}="{password}" user_{limited}="{password}";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:{user}
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
log.cleaner.dedupe.buffer.size=4194304
controlled.shutdown.enable=false
# A broker that was killed may come back after this time, and not before.
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
"""
_FLAGS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Kafka(Service):
    """A broker on a free port, for as long as the block lasts."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        jars = find_jars("kafka")
        if jars is None:
            message = "the jars of kafka were not resolved"
            raise FileNotFoundError(message)
        self._jars, self._folder = jars, folder
        self._process: Process | None = None
        self._starts = 0
        self._port, self._secure = free_port(), free_port()
        self._write_config()
        write_certificate(folder / "broker.pem", folder / "authority.pem")
        self._format()
        self._start(_STARTS)

    @property
    def bootstrap(self) -> str:
        """Where clients find it."""
        return f"127.0.0.1:{self._port}"

    @property
    def secured(self) -> tuple[str, dict[str, str]]:
        """Where clients find it by TLS with a password, and the settings that they need."""
        return f"127.0.0.1:{self._secure}", {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self._folder / "authority.pem"),
            "sasl.mechanism": "PLAIN",
            "sasl.username": _USER,
            "sasl.password": _PASSWORD,
        }

    @property
    def limited(self) -> tuple[str, dict[str, str]]:
        """Where the user is found who may do what ACLs allow, as ``secured`` says for another."""
        bootstrap, settings = self.secured
        return bootstrap, {**settings, "sasl.username": LIMITED}

    def kill(self) -> None:
        """Kill it: what it has acknowledged stays."""
        if self._process is not None:
            self._process.kill()

    def restart(self) -> None:
        """Start it again, on the same port and data."""
        self._start(1)

    def pause(self) -> None:
        """Stop it in its tracks."""
        if self._process is not None:
            self._process.pause()

    def resume(self) -> None:
        """Let it go on."""
        if self._process is not None:
            self._process.resume()

    def stop(self) -> None:
        """Kill it: its data go with the test."""
        self.kill()

    def _start(self, tries: int) -> None:
        self._starts += 1
        log = self._folder / f"broker-{self._starts}.log"
        self._process = Process(self._java("kafka.Kafka", str(self._config)), log)
        try:
            self._process.wait_for("Kafka Server started")
        except RuntimeError as error:
            self._process.kill()
            if "Address already in use" not in str(error) or tries <= 1:
                raise
            self._port, self._secure = free_port(), free_port()
            self._write_config()
            self._start(tries - 1)

    @property
    def _config(self) -> Path:
        return self._folder / "server.properties"

    def _write_config(self) -> None:
        text = _CONFIG.format(
            port=self._port,
            secure=self._secure,
            controller=free_port(),
            folder=self._folder,
            data=self._folder / "data",
            login=_LOGIN,
            user=_USER,
            limited=LIMITED,
            password=_PASSWORD,
        )
        self._config.write_text(text)

    def _format(self) -> None:
        """Make an empty log; it names neither port nor place, so it is made once and copied."""
        template = self._jars.parent / f"{self._jars.name}-formatted"
        data = self._folder / "data"
        if not template.is_dir():
            order = ["format", "-t", _CLUSTER, "-c", str(self._config)]
            subprocess.run(
                self._java("kafka.tools.StorageTool", *order), check=True, capture_output=True
            )
            part = template.with_name(f"{template.name}.{os.getpid()}")
            shutil.copytree(data, part)
            try:
                part.rename(template)
            except OSError:  # another process was first
                shutil.rmtree(part)
            return
        shutil.copytree(template, data)

    def _java(self, main: str, *words: str) -> list[str]:
        java = str(require_java(os.environ).program)
        log = f"-Dlog4j2.configurationFile={HERE / 'kafka_jars' / 'log4j2.properties'}"
        return [java, *_FLAGS, log, "-cp", f"{self._jars}/*", main, *words]
