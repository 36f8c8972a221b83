"""A transport that loses, repeats, delays, reorders and damages messages, by a seed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

LOST, REPEATED, DAMAGED, LATE = 0.1, 0.1, 0.05, 0.3
_DELAY_MAX = 6


@dataclass
class RoughTopic:
    """Every end gets every message, its own too, unless something happens to it."""

    draw: np.random.Generator
    rough: bool = True
    ends: list[RoughEnd] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)

    def end(self) -> RoughEnd:
        """Return one more end."""
        self.ends.append(RoughEnd(self))
        return self.ends[-1]


@dataclass(eq=False)
class RoughEnd:
    """One end: messages with the number of receives that each is still late for."""

    topic: RoughTopic
    waiting: list[list[object]] = field(default_factory=list)

    def send(self, message: bytes) -> None:
        """Send to all."""
        self.topic.sent.append(message)
        for end in self.topic.ends:
            end.take(message)

    def take(self, message: bytes) -> None:
        """Let happen to a message what may."""
        draw = self.topic.draw
        if not self.topic.rough:
            self.waiting.append([0, message])
            return
        if draw.random() < LOST:
            return
        if draw.random() < DAMAGED:
            at = int(draw.integers(len(message)))
            message = (
                message[:at] + bytes([message[at] ^ 1 << int(draw.integers(8))]) + message[at + 1 :]
            )
        for _ in range(2 if draw.random() < REPEATED else 1):
            late = int(draw.integers(1, _DELAY_MAX)) if draw.random() < LATE else 0
            self.waiting.append([late, message])

    def receive(self, wait_s: float) -> bytes | None:
        """Give the first message that is not late."""
        del wait_s
        for at, entry in enumerate(self.waiting):
            if entry[0] == 0:
                return self.waiting.pop(at)[1]  # type: ignore[return-value]
        for entry in self.waiting:
            entry[0] -= 1  # type: ignore[operator]
        return None
