"""Challenges of a node: random bytes that a caller's proof goes over.

A challenge is given to one connection and serves once. So strangers who ask for many use up only
their own.
"""

from __future__ import annotations

from collections.abc import Callable

from trioha.remoting.channel import Channel

CHALLENGE_BYTES = 32
CONNECTIONS_MAX = 4096
"""Connections with open challenges; the oldest makes room, and its caller asks again."""
CHALLENGES_MAX = 16
"""Open challenges of one connection, which may carry several requests at once."""


class Challenges:
    """The open challenges of one node."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        self._given: dict[Channel, list[bytes]] = {}

    def give(self, channel: Channel) -> bytes:
        """Return a new challenge for a connection."""
        if channel not in self._given and len(self._given) >= CONNECTIONS_MAX:
            self._given = {one: kept for one, kept in self._given.items() if not one.closed}
            if len(self._given) >= CONNECTIONS_MAX:
                del self._given[next(iter(self._given))]
        challenge = self._random_bytes(CHALLENGE_BYTES)
        given = self._given.setdefault(channel, [])
        given.append(challenge)
        del given[:-CHALLENGES_MAX]
        return challenge

    def takes(self, channel: Channel, challenge: bytes) -> bool:
        """Return whether this connection was given the challenge, which is used up by that."""
        given = self._given.get(channel, [])
        if challenge not in given:
            return False
        given.remove(challenge)
        if not given:
            del self._given[channel]
        return True
