"""One process of a race: ``python -m plait.storage.race_worker``, orders on its standard input.

First line: where and how, as JSON. Then one line a round, its number. It answers each with
how many of its threads won, how many reads were torn, and the errors.
"""

from __future__ import annotations

import json
import sys
from typing import TextIO

from plait.model.store_address import StoreAddress
from plait.storage import open_store
from plait.storage.race import race_round


def serve(orders: TextIO, replies: TextIO) -> None:
    """Race once a line until the orders end."""
    order = json.loads(orders.readline())
    sys.setswitchinterval(order["switch_s"])  # this process has no other work to disturb
    address = StoreAddress(order["uri"], tuple((key, value) for key, value in order["options"]))
    stores = [open_store(address, create=True) for _ in range(order["threads"])]
    replies.write("ready\n")
    replies.flush()
    for line in orders:
        path = f"{order['prefix']}/{int(line)}"
        result = race_round(stores, path, order["name"], swap=order["swap"])
        json.dump([result.winners[0], result.torn, result.errors], replies)
        replies.write("\n")
        replies.flush()


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
