"""One process of the lock kit: ``python -m plait.testing.lock_worker``, orders on standard input.

The first line is JSON: the lock and the store. Then ``turns N`` takes the lock N times and answers
when; ``hold`` takes it and keeps it until the process is killed; ``watch`` takes it, answers, and
answers again when the lock is lost. Every other order is answered by one line.
"""

from __future__ import annotations

import json
import sys
from typing import TextIO

from plait.locks import open_lock
from plait.model.consent import Consent
from plait.model.store_address import StoreAddress
from plait.ports import Ports
from plait.storage import open_store
from plait.testing.lock_kit import FileCounter, take_turns

_FOR_EVER_S = 3600


def serve(orders: TextIO, replies: TextIO) -> None:
    """Do as told until the orders end."""
    facts = json.loads(orders.readline())
    options = tuple((key, value) for key, value in facts["options"])
    store = open_store(StoreAddress(facts["uri"], options))
    ports = Ports()
    provider = open_lock(facts["lock"], store, ports, Consent().also(facts["lock"]))
    counter = FileCounter(facts["counter"])
    _reply(replies, [])
    for line in orders:
        order, _, count = line.strip().partition(" ")
        if order == "turns":
            _reply(replies, take_turns(provider, facts["name"], int(count), counter))
        elif order == "hold":
            with provider.acquire(wait_s=60, owner=facts["name"]):
                _reply(replies, [])
                ports.clock.sleep(_FOR_EVER_S)
        elif order == "watch":
            with provider.acquire(wait_s=60, owner=facts["name"]) as held:
                _reply(replies, [])
                while held.lost is None:
                    ports.clock.sleep(0.01)
            _reply(replies, [])


def _reply(replies: TextIO, answer: object) -> None:
    json.dump(answer, replies)
    replies.write("\n")
    replies.flush()


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
