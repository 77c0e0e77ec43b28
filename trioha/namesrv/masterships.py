"""Claims to be master of a broker name: the newest epoch wins.

Theory of operation. RocketMQ's name server takes the last registration, so a deposed master that
comes back takes the clients with it (faults D4 and D5). Here a claim to id 0 carries its epoch,
and a claim older than the newest seen is rejected. The answer names the newest claim.

In a set that was never failed over (epoch 1, or none: a Java broker) the last claim wins, as in
RocketMQ. Of two claims with the same later epoch the first wins: two operators made them, and the
other node has to cut its log.

A claim whose epoch is far beyond the newest (`trioha.wire.epoch_numbers`) is rejected: it would
keep every real master out.

Nothing is stored. A restarted name server learns the newest epoch with the first registrations.
Meanwhile the log is safe, since slaves do not acknowledge to an older epoch.
"""

from __future__ import annotations

import attrs

from trioha.errors import RemoteProtocolError
from trioha.wire.epoch_numbers import Word, disbelief

NAMES_MAX = 10_000
"""Limit of remembered broker names; the one claimed longest ago makes room."""
UNCONTESTED_EPOCH_MAX = 1


@attrs.frozen
class Claim:
    """One registration as master."""

    address: str
    ha_server_addr: str
    epoch: int = 0
    """0 from a broker that has no epochs."""
    nonce: str = ""
    """Random number that tells two terms with the same epoch apart."""
    in_doubt: bool = False
    """The claimant has come back and asks whether it is still master. Such a claim is judged like
    any other, but not remembered."""


class Masterships:
    """The newest claim to each broker name."""

    def __init__(self, *, names_max: int = NAMES_MAX) -> None:
        self._newest: dict[str, Claim] = {}
        self._since_ms: dict[str, int] = {}
        self._names_max = names_max

    def judge(self, broker_name: str, claim: Claim, now_ms: int = 0) -> Claim | None:
        """Return the claim that beats this one. Without one, remember this claim; return None.

        Errors: RemoteProtocolError when the claim's epoch cannot be; nothing has changed.
        """
        newest = self._newest.get(broker_name)
        if doubt := _disbelief(newest, claim):
            raise RemoteProtocolError(
                f"{claim.address} claims to be master of {broker_name}: {doubt}"
            )
        if newest is not None and _refutes(newest, claim):
            return newest
        if claim.epoch and not claim.in_doubt:
            if newest is None or (newest.epoch, newest.nonce) != (claim.epoch, claim.nonce):
                self._since_ms[broker_name] = now_ms
            self._newest.pop(broker_name, None)
            self._newest[broker_name] = claim
            if len(self._newest) > self._names_max:
                oldest = next(iter(self._newest))
                del self._newest[oldest], self._since_ms[oldest]
        return None

    def held_ms(self, broker_name: str, claim: Claim, now_ms: int) -> int | None:
        """Return for how many ms this claim has been the newest; None if it is not the newest."""
        newest = self._newest.get(broker_name)
        if newest is None or (newest.epoch, newest.nonce) != (claim.epoch, claim.nonce):
            return None
        return now_ms - self._since_ms[broker_name]

    def newest(self, broker_name: str) -> Claim | None:
        """Return the newest accepted claim that has an epoch."""
        return self._newest.get(broker_name)


def _disbelief(newest: Claim | None, claim: Claim) -> str:
    """Return why the claim's number is not believed; "" if it is."""
    # A name server that has just started knows no claim. It takes a number as far on as brokers
    # take one from a name server, so that it never keeps a set's real master out.
    if newest is None:
        return disbelief(claim.epoch, 0, Word.ASKED)
    return disbelief(claim.epoch, newest.epoch, Word.UNASKED)


def _refutes(newest: Claim, claim: Claim) -> bool:
    if newest.epoch <= UNCONTESTED_EPOCH_MAX:
        return False
    return claim.epoch < newest.epoch or (
        claim.epoch == newest.epoch and claim.nonce != newest.nonce
    )
