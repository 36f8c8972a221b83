"""Rights on the brokers' resources (ACLs), and the error that names those that are missing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from plait.errors import AccessDeniedError

TOPIC: Final = "topic"
GROUP: Final = "group"
CLUSTER: Final = "cluster"


class Right(NamedTuple):
    """An operation on a resource, by the names that Kafka's ACLs use."""

    operation: str
    resource: str
    name: str

    def __str__(self) -> str:
        """Return the right as an error names it.

        >>> str(Right("READ", "topic", "events"))
        "READ on topic 'events'"
        """
        return f"{self.operation} on {self.resource} {self.name!r}"


def access_denied(missing: Iterable[Right], reason: object = "") -> AccessDeniedError:
    """Return the error for rights that the user of a sink does not have.

    >>> str(access_denied([Right("WRITE", "topic", "bad")]))
    "the brokers do not allow this user: WRITE on topic 'bad' (add an ACL for each of them)"
    """
    rights = tuple(map(str, missing))
    message = f"the brokers do not allow this user: {', '.join(rights)}"
    if reason:
        message += f": {reason}"
    return AccessDeniedError(message, hint="add an ACL for each of them", missing=rights)
