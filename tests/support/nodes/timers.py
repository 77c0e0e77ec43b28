"""Producers of timer messages at whole nodes, and the verdict on what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from random import Random

import attrs

from support.handlers.sending import send_v2
from support.nodes.transactions import answer_of
from trioha.broker.timers.service import Timers
from trioha.wire.codes import RequestCode
from trioha.wire.names import TIMER_TOPIC
from trioha.wire.properties import UNIQ_KEY, Property, encode_properties
from trioha.wire.record import Record
from trioha.wire.remoting_command import RemotingCommand
from trioha.wire.timers import timer_code

TOPIC = "T"
DELAYS_MS = (50, 700, 1_500, 3_000, 6_000)
_ONE_TAKEN_BACK_OF = 5


@attrs.define(eq=False)
class TimerLoad:
    """A load of delayed messages that takes back every fifth acknowledged one."""

    rng: Random = attrs.Factory(lambda: Random(1))
    sent: int = 0
    acknowledged: set[str] = attrs.Factory(set)
    recalled: set[str] = attrs.Factory(set)
    """Keys whose recall was answered with success."""
    doubtful: set[str] = attrs.Factory(set)
    """Keys whose recall was not answered, or not in time."""
    twice: int = 0
    """Deliveries beyond the first; `check` counts them."""

    async def send(self, ask: Callable[[RemotingCommand], Awaitable[RemotingCommand]]) -> None:
        """Send one message, and perhaps take it back at once."""
        key = f"D{self.sent}"
        self.sent += 1
        properties = {UNIQ_KEY: key, Property.TIMER_DELAY_MS: str(self.rng.choice(DELAYS_MS))}
        request = send_v2(TOPIC, properties=encode_properties(properties).decode(), e="0")
        answer = await answer_of(ask, request)
        if answer is None or answer.code:
            return
        self.acknowledged.add(key)
        # By number, not by chance: a run acknowledges about 50, and chance sometimes takes none.
        if len(self.acknowledged) % _ONE_TAKEN_BACK_OF:
            return
        handle = answer.ext_str("recallHandle")
        fields = {"topic": TOPIC, "recallHandle": handle, "producerGroup": "pg"}
        answer = await answer_of(ask, RemotingCommand(RequestCode.RECALL_MESSAGE, {**fields}))
        if answer is None or answer.code:
            self.doubtful.add(key)
        else:
            self.recalled.add(key)

    def check(self, records: Iterable[Record], *, is_exact: bool) -> None:
        """Compare the log that counts with what was asked for. Nothing is pending by now.

        `is_exact`: none may have come twice.
        """
        due: dict[str, int] = {}
        delivered: Counter[str] = Counter()
        for record in records:
            key = record.properties.get(UNIQ_KEY, "")
            if record.topic == TIMER_TOPIC:
                if Property.TIMER_DEL_UNIQKEY not in record.properties:
                    due[key] = timer_code(record.properties)
            elif record.topic == TOPIC and key in due:
                delivered[key] += 1
                assert record.store_timestamp >= due[key], f"{key} is early"
        lost = self.acknowledged - due.keys()
        assert not lost, f"acknowledged and not in the log: {lost}"
        wanted = due.keys() - self.recalled - self.doubtful
        assert not wanted - delivered.keys(), f"not delivered: {wanted - delivered.keys()}"
        unwanted = self.recalled & delivered.keys()
        assert not unwanted, f"taken back and delivered: {unwanted}"
        self.twice = delivered.total() - len(delivered)
        assert not self.twice or not is_exact, delivered.most_common(3)
        assert len(self.acknowledged) > 20, "hardly any was acknowledged"
        assert self.recalled, "none was taken back"


def is_finished(timers: Timers) -> bool:
    """Is nothing pending at a master?"""
    return timers.is_loaded and not timers.pending_count
