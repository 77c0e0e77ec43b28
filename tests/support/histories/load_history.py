"""Does a log hold what the senders of a `Load` were told, from one check to the next?"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from support.histories.commitlog import stored_messages
from support.histories.judge import demand_none, judge_log, judge_strangers
from support.histories.load import Sent
from support.histories.messages import Place
from trioha.wire.codes import ResponseCode


class LoadHistory:
    """Everything sent to one topic of one replica set."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.acknowledged = 0
        self.unknown = 0
        self._sent: list[Sent] = []
        self._places: dict[str, Place] = {}

    def add(self, sent: Iterable[Sent]) -> None:
        for message in sent:
            self._sent.append(message)
            self.acknowledged += message.stored
            self.unknown += message.code is None

    def check(self, commitlog: Path) -> None:
        """Judge the log of a master; what was there at the last check still is, at its place.

        Errors: AssertionError with the first findings.
        """
        log = list(stored_messages(commitlog, self.topic))
        puts = [message.put for message in self._sent]
        places = {stored.name: stored.place for stored in log}
        demand_none(
            [
                *judge_strangers(puts, log),
                *(finding.words for finding in judge_log(puts, log)),
                *(
                    f"{name} was at {place} and now is at {places.get(name)}"
                    for name, place in self._places.items()
                    if places.get(name) != place
                ),
            ]
        )
        self._places = places

    def check_replica(self, commitlog: Path) -> None:
        """A slave's log holds every message that a SYNC_MASTER has answered with SEND_OK."""
        held = {stored.name for stored in stored_messages(commitlog, self.topic)}
        missing = [
            sent.name
            for sent in self._sent
            if sent.code == ResponseCode.SUCCESS and sent.name not in held
        ]
        assert not missing, f"{commitlog} lacks {len(missing)} SEND_OK, the first {missing[:5]}"
