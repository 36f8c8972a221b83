"""A sink whose user has exactly the documented rights runs; without one of them it names it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from plait import AccessDeniedError, Table
from plait.cli.main import main
from plait.kafka.settings import SinkSettings
from plait.kafka.sink import KafkaSink
from plait.testing.expect import refused
from tests.integration.kafka.conftest import WAIT_S, Events, wait_for
from tests.services.kafka import LIMITED

pytestmark = pytest.mark.kafka

RIGHTS = (
    ("READ", "topic", "topic"),
    ("READ", "group", "name"),
    ("READ", "topic", "control"),
    ("WRITE", "topic", "control"),
    ("CREATE", "topic", "control"),
    ("WRITE", "topic", "dead_letters"),
)
"""The table of docs/how-to/kafka.md: an operation, a resource, and which setting names it."""


def settings_of(events: Events) -> SinkSettings:
    """Return the settings of a sink whose user has no right yet."""
    letters = f"{events.name}-dead"
    events.clients.make_topic(letters, settings={})
    bootstrap, login = events.kafka.limited
    return replace(
        events.settings,
        bootstrap=bootstrap,
        client={**events.settings.client, **login},
        dead_letters=letters,
    )


def named(settings: SinkSettings, right: tuple[str, str, str]) -> str:
    """Return a right as errors name it."""
    operation, resource, setting = right
    return f"{operation} on {resource} {name_of(settings, setting)!r}"


def name_of(settings: SinkSettings, setting: str) -> str:
    return settings.topics[0] if setting == "topic" else getattr(settings, setting)


def binding(settings: SinkSettings, right: tuple[str, str, str]) -> AclBinding:
    operation, resource, setting = right
    return AclBinding(
        ResourceType[resource.upper()],
        name_of(settings, setting),
        ResourcePatternType.LITERAL,
        f"User:{LIMITED}",
        "*",
        AclOperation[operation],
        AclPermissionType.ALLOW,
    )


def grant(events: Events, settings: SinkSettings, *rights: tuple[str, str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": events.kafka.bootstrap})
    for answer in admin.create_acls([binding(settings, right) for right in rights]).values():
        answer.result(WAIT_S)


def revoke(events: Events, settings: SinkSettings, right: tuple[str, str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": events.kafka.bootstrap})
    for answer in admin.delete_acls([filter_of(binding(settings, right))]).values():
        assert len(answer.result(WAIT_S)) == 1


def filter_of(found: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        found.restype,
        found.name,
        found.resource_pattern_type,
        found.principal,
        found.host,
        found.operation,
        found.permission_type,
    )


def test_a_sink_runs_with_exactly_the_documented_rights(
    make_events: Callable[..., Events], tmp_path: Path
) -> None:
    events = make_events(2)
    settings = settings_of(events)
    grant(events, settings, *RIGHTS)
    table = Table.create(str(tmp_path / "t"), "id bigint, note string")
    events.produce([*({"id": number, "note": "a"} for number in range(50)), b"no JSON"])
    with events.running(table, **changed(events, settings)):
        wait_for(table, 50)
    assert dead_letters(events, settings) == [b"no JSON"]


@pytest.mark.long(2)
@pytest.mark.parametrize("right", RIGHTS, ids="-".join)
def test_a_missing_right_is_named_before_anything_is_written(
    make_events: Callable[..., Events], tmp_path: Path, right: tuple[str, str, str]
) -> None:
    events = make_events(1)
    settings = settings_of(events)
    grant(events, settings, *(each for each in RIGHTS if each != right))
    table = Table.create(str(tmp_path / "t"), "id bigint, note string")
    events.produce([{"id": 1, "note": "a"}])
    before = written(tmp_path)
    with refused(AccessDeniedError) as refusal:
        KafkaSink(table, settings)
    assert refusal.error.missing == (named(settings, right),)
    assert written(tmp_path) == before


def test_who_may_only_see_the_group_is_refused_before_anything_is_written(
    make_events: Callable[..., Events], tmp_path: Path
) -> None:
    events = make_events(1)
    settings = settings_of(events)
    right = ("READ", "group", "name")
    grant(events, settings, *(each for each in RIGHTS if each != right))
    grant(events, settings, ("DESCRIBE", "group", "name"))
    table = Table.create(str(tmp_path / "t"), "id bigint, note string")
    before = written(tmp_path)
    with refused(AccessDeniedError) as refusal:
        KafkaSink(table, settings)
    assert refusal.error.missing == (named(settings, right),)
    assert written(tmp_path) == before


def test_all_missing_rights_are_named_at_once_and_no_table_is_created(
    make_events: Callable[..., Events], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = make_events(1)
    settings = settings_of(events)
    client = [f"--client={key}={value}" for key, value in settings.client.items()]
    uri = str(tmp_path / "t")
    code = main(
        ["sink", "kafka", uri, f"--topic={events.name}", f"--bootstrap={settings.bootstrap}",
         f"--dead-letters={settings.dead_letters}", "--create=id bigint", *client]
    )  # fmt: skip
    assert code == 10
    told = capsys.readouterr().err
    assert told.startswith("error[access_denied]: ")
    assert [right for right in RIGHTS if named(settings, right) not in told] == []
    assert not Path(uri).exists()
    assert events.clients.find_topics([settings.control]) == {}


@pytest.mark.long(1)
@pytest.mark.parametrize("right", RIGHTS[:4], ids="-".join)
def test_a_right_that_is_revoked_ends_the_process_and_is_named(
    make_events: Callable[..., Events], tmp_path: Path, right: tuple[str, str, str]
) -> None:
    events = make_events(1)
    settings = settings_of(events)
    grant(events, settings, *RIGHTS)
    table = Table.create(str(tmp_path / "t"), "id bigint, note string")
    events.produce([{"id": 1, "note": "a"}])
    with (
        refused(AccessDeniedError) as refusal,
        events.running(table, **changed(events, settings)) as ended,
    ):
        wait_for(table, 1)
        revoke(events, settings, right)
        events.produce([{"id": 2, "note": "b"}])
        assert ended.wait(WAIT_S)
    assert refusal.error.missing == (named(settings, right),)
    grant(events, settings, right)
    with events.running(table, **changed(events, settings)):
        wait_for(table, 2)


def changed(events: Events, settings: SinkSettings) -> dict[str, object]:
    """Return in what settings differ from those of the topic's other user."""
    plain = events.settings
    names = (each.name for each in fields(settings))
    return {n: getattr(settings, n) for n in names if getattr(settings, n) != getattr(plain, n)}


def written(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


def dead_letters(events: Events, settings: SinkSettings) -> list[bytes | None]:
    consumer = events.clients.consumer()
    try:
        consumer.assign([events.clients.place(settings.dead_letters, 0, 0)])
        return [message.value() for message in consumer.consume(2, 3)]
    finally:
        consumer.close()
