"""Who may be master of a broker name: the newest epoch claimed decides.

RocketMQ's name server believes whoever registered last, so a deposed master that comes back takes
the clients with it (faults D4 and D5). Here a claim to id 0 carries its epoch, and one that is
older than the newest seen is refused. The claimant is told who stands against it.

Among claims of a set that was never failed over (epoch 1, or none: a Java broker) the last one
wins, as ever. Of two claims under the same later number the first wins: two operators made them,
and one of the two has to cut back.

Nothing is stored. A name server that starts anew learns the newest epoch with the first
registrations; what protects the log meanwhile is that slaves do not acknowledge to an older epoch.
"""

from __future__ import annotations

import attrs

NAMES_MAX = 10_000
"""Broker names whose epoch is remembered; the one claimed longest ago makes room."""
UNCONTESTED_EPOCH_MAX = 1


@attrs.frozen
class Claim:
    """One registration as master."""

    address: str
    ha_server_addr: str
    epoch: int = 0
    """0 for who knows no epochs."""
    nonce: str = ""
    """Tells two terms with the same number apart."""
    in_doubt: bool = False
    """The claimant has come back and asks whether it still is master: that is judged as any claim,
    and is no reason to remember it."""


class Masterships:
    """The newest claim to each broker name."""

    def __init__(self, *, names_max: int = NAMES_MAX) -> None:
        self._newest: dict[str, Claim] = {}
        self._since_ms: dict[str, int] = {}
        self._names_max = names_max

    def judge(self, broker_name: str, claim: Claim, now_ms: int = 0) -> Claim | None:
        """The claim that stands against this one; None, and it is remembered, if none does."""
        newest = self._newest.get(broker_name)
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
        """For how long this claim has been the newest, repeated or not; None if it is not."""
        newest = self._newest.get(broker_name)
        if newest is None or (newest.epoch, newest.nonce) != (claim.epoch, claim.nonce):
            return None
        return now_ms - self._since_ms[broker_name]

    def newest(self, broker_name: str) -> Claim | None:
        """The newest claim with an epoch that was accepted."""
        return self._newest.get(broker_name)


def _refutes(newest: Claim, claim: Claim) -> bool:
    if newest.epoch <= UNCONTESTED_EPOCH_MAX:
        return False
    return claim.epoch < newest.epoch or (
        claim.epoch == newest.epoch and claim.nonce != newest.nonce
    )
