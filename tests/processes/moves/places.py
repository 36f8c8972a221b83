"""Where a run takes place: a disk or the S3 server of the tests, and one of the locks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.processes.stress.__main__ import SLOWNESS_S3, Place, kill_leader
from tests.services.s3 import S3Server
from tests.services.zookeeper import ZooKeeper

STORES = ("local", "s3")
LOCKS = ("default", "none", "zookeeper")


@contextmanager
def opened(store: str, lock: str, folder: Path) -> Iterator[Place]:
    """Start what the store and the lock need; an ensemble of ZooKeeper loses its leader."""
    with ExitStack() as living:
        uri, options, slowness = str(folder / "table"), {}, 1.0
        if store == "s3":
            server = living.enter_context(S3Server(folder))
            uri, options, slowness = server.uri("moves"), server.options, SLOWNESS_S3
        if lock != "zookeeper":
            yield Place(uri, None if lock == "default" else lock, options, slowness)
            return
        ensemble = living.enter_context(ZooKeeper(folder, members=3))
        yield Place(
            uri,
            ensemble.lock("moves"),
            options,
            slowness,
            disturb=lambda _: kill_leader(ensemble),
        )
