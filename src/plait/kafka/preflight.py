"""The check before a sink starts: whether its user has every right that it will need."""

from __future__ import annotations

from contextlib import suppress

from plait.errors import AccessDeniedError
from plait.kafka.access import GROUP, TOPIC, Right, access_denied
from plait.kafka.client import Clients
from plait.kafka.membership import may_join
from plait.kafka.settings import SinkSettings


def require_rights(clients: Clients, settings: SinkSettings) -> None:
    """Refuse to start a sink whose user lacks a right; all missing rights are named at once.

    Brokers without an authorizer grant every right. Brokers that do not report rights are
    trusted here, and refuse the first request that they do not allow.

    Raises:
        AccessDeniedError: a right is missing.
        StorageError: the brokers do not answer.
    """
    missing: list[Right] = []
    for topic in settings.topics:
        missing += _missing(clients, topic, "READ")
    if settings.dead_letters:
        missing += _missing(clients, settings.dead_letters, "WRITE")
    missing += _missing(clients, settings.control, "READ", "WRITE")
    missing += _missing_creation(clients, settings.control)
    missing += _missing_membership(clients, settings)
    if missing:
        raise access_denied(missing)


def _missing(clients: Clients, topic: str, *operations: str) -> list[Right]:
    """Return which operations on a topic are known not to be granted."""
    try:
        found = clients.find_topics([topic]).get(topic)
    except AccessDeniedError:
        return [Right(operation, TOPIC, topic) for operation in operations]
    return [] if found is None else found.missing(*operations)


def _missing_creation(clients: Clients, topic: str) -> list[Right]:
    """Return the right to create a topic if it is needed and not granted.

    It may be needed where the user may not see whether the topic exists.
    """
    with suppress(AccessDeniedError):
        if clients.find_topics([topic]):
            return []
    try:
        clients.make_topic(topic, settings={}, dry_run=True)
    except AccessDeniedError:
        return [Right("CREATE", TOPIC, topic)]
    return []


def _missing_membership(clients: Clients, settings: SinkSettings) -> list[Right]:
    """Return the right to be a member of the sink's group if it is not granted."""
    if may_join(clients, settings.name, settings.topics[0]):
        return []
    return [Right("READ", GROUP, settings.name)]
