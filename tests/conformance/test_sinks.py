"""Our sinks under the kit that is shipped to users."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from plait import Table
from plait.kafka import TopicSink
from plait.kafka.client import Clients
from plait.ports import SystemIds
from plait.replicate import Sink, SqlSink, TableSink
from plait.testing import SinkKit
from tests.services.kafka import Kafka
from tests.services.postgresql import PostgreSql


class TestSqlSinkOnSqlite(SinkKit):
    @pytest.fixture
    def sink(self, tmp_path: Path) -> Sink:
        return SqlSink("serving", f"sqlite:///{tmp_path}/serving.db", "flights")


@pytest.mark.postgresql
class TestSqlSinkOnPostgresql(SinkKit):
    @pytest.fixture
    def sink(self, postgresql: PostgreSql) -> Sink:
        return SqlSink("serving", postgresql.url, f"flights_{SystemIds().nonce()}")


@pytest.mark.kafka
class TestTopicSink(SinkKit):
    schema = replace(SinkKit.schema, ordering=None)

    @pytest.fixture
    def sink(self, kafka: Kafka) -> Sink:
        name = f"sink-{SystemIds().nonce()}"
        clients = Clients(kafka.bootstrap, {"log_level": "0"})
        clients.make_topic(name, partitions=3, settings={})
        return TopicSink("topic", kafka.bootstrap, name, {"log_level": "0"})


@pytest.mark.parametrize("kind", ["cow", "mor"])
class TestTableSink(SinkKit):
    @pytest.fixture
    def sink(self, tmp_path: Path, kind: str) -> Sink:
        uri = str(tmp_path / "replica")
        Table.create(
            uri,
            self.schema.arrow,
            record_key="id",
            partition_by="region",
            ordering="rev",
            table_type=kind,
        )
        return TableSink("replica", uri)
