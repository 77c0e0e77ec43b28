"""Locks on a topic's queues: two operators do not send, or delete, the same messages at once.

Theory of operation. Brokers lock queues for orderly consumers (41, 42). A job locks the queues of
its messages under a group of its own, which no consumer has. A lock ends 60 s after its last
renewal. A job has no clock, so it counts the longest time that its requests may have taken, and
renews the locks early: no lock ends while its holder works.
"""

from __future__ import annotations

from contextlib import suppress

import attrs

from trioha.errors import Unreachable
from trioha.failover.asking import Flow, Reply, ask_all, pause
from trioha.jobs.cluster_map import MASTER_ID, read_route
from trioha.jobs.telling import JobRefused, JobScope, answered
from trioha.wire.bodies import LockBatchBody, MessageQueue, decode_locked_queues
from trioha.wire.codes import RequestCode

LOCK_GROUP = "TRIOHA_RESEND"
_RENEW_S = 30.0
_REST_S = 20.0
_Owner = tuple[str, str, list[MessageQueue]]
"""A master that holds locks: its name, its address, and which queues."""


@attrs.define
class HeldQueues:
    """Locks on queues of one topic, held by one client."""

    scope: JobScope
    client_id: str
    queues: list[MessageQueue]
    """All of one topic: brokers are those of its route."""
    age_s: float = 0.0
    """Longest time since the last renewal."""
    _owners: list[_Owner] = attrs.field(factory=list, init=False)

    def take(self) -> Flow[None]:
        """Take or renew the locks. Errors: JobRefused when another client has one, Unreachable."""
        self._owners = yield from self._masters()
        replies = yield from self._ask(RequestCode.LOCK_BATCH_MQ)
        for (broker, address, mine), reply in zip(self._owners, replies, strict=True):
            held = decode_locked_queues(answered(address, reply).body)
            if missing := sorted(set(mine) - set(held)):
                yield from self.give_back()
                raise JobRefused(
                    f"another operator resends or purges queue {missing[0].queue_id} of"
                    f" {missing[0].topic} at {broker}; wait for the end of that, its lock ends 60 s"
                    " after it has stopped"
                )
        self.age_s = 0.0

    def work(self, seconds: float) -> Flow[None]:
        """Note that the next requests may take so long; renew the locks where they would end.

        Errors: JobRefused when another client has one.
        """
        if self.age_s >= _RENEW_S:
            # No client can take a lock at a broker that does not answer; the next work tries again.
            with suppress(Unreachable):
                yield from self.take()
        self.age_s += seconds

    def rest(self, seconds: float) -> Flow[None]:
        """Pause, and renew the locks meanwhile. Errors: as `work`."""
        while seconds > 0:
            step = min(seconds, _REST_S)
            yield from self.work(step)
            yield from pause(step)
            seconds -= step

    def give_back(self) -> Flow[None]:
        """Give the locks back; one that does not get through ends by itself."""
        yield from self._ask(RequestCode.UNLOCK_BATCH_MQ)

    def _masters(self) -> Flow[list[_Owner]]:
        route = (yield from read_route(self.scope, self.queues[0].topic)) if self.queues else None
        owners: list[_Owner] = []
        for one in () if route is None else route.broker_datas:
            mine = [queue for queue in self.queues if queue.broker_name == one.broker_name]
            if mine and MASTER_ID in one.broker_addrs:
                owners.append((one.broker_name, one.broker_addrs[MASTER_ID], mine))
        return owners

    def _ask(self, code: RequestCode) -> Flow[list[Reply]]:
        bodies = [
            (address, LockBatchBody(LOCK_GROUP, self.client_id, mine).encode())
            for _, address, mine in self._owners
        ]
        return (yield from ask_all(*[self.scope.ask(one, code, {}, body) for one, body in bodies]))
