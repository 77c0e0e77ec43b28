"""Requests of every code that a port has, drawn from a seed; some of them damaged as frames.

What a request needs is learned from the answers: a node names the field that is missing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from random import Random

from support.hostile.bodies import odd_body
from support.hostile.values import CLIENT_GROUPS, NUMBERS, PLACES, TEXTS, damaged, odd_bytes
from trioha.security.node_signer import Sign, unsigned
from trioha.security.requirements import REQUIREMENTS, Port
from trioha.security.signing_key import ACCESS_KEY, SIGNATURE
from trioha.wire.codes import SENDS, RequestCode
from trioha.wire.remoting_command import ExtValue, RemotingCommand, encode

_MISSING = re.compile(r"request (\d+): field (\w+) is missing")
_SEND: dict[str, ExtValue] = {"producerGroup": "pg", "topic": "T", "queueId": 0, "sysFlag": 0}
_SEND |= {
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": 4,
    "bornTimestamp": 1,
    "flag": 0,
    "properties": "",
    "reconsumeTimes": 0,
    "batch": False,
}
_SEND_V2: dict[str, ExtValue] = {"a": "pg", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0}
_SEND_V2 |= {"g": 1, "h": 0, "i": "", "j": 0, "k": False, "l": 16, "m": False}
_PULL: dict[str, ExtValue] = {"consumerGroup": "g", "topic": "T", "queueId": 0, "queueOffset": 0}
_PULL |= {"maxMsgNums": 32, "sysFlag": 6, "commitOffset": 0, "suspendTimeoutMillis": 50}
_PULL |= {"subscription": "*", "subVersion": 0, "expressionType": "TAG"}
_PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
_V2 = (
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
)

CLOSING = [code for code, it in REQUIREMENTS[Port.BROKER].items() if it.by_connection]
"""Drawn seldom: what lies behind such a request on its connection is not read."""


class HostileFrames:
    """The frames of one port."""

    def __init__(self, rng: Random, port: Port, sign: Sign | None = None) -> None:
        """`sign` signs most of the frames as an account that may do everything."""
        self._rng = rng
        self.sign = sign or unsigned
        self._has_account = sign is not None
        self._codes = [int(code) for code in REQUIREMENTS[port] if code not in CLOSING]
        self._codes += 4 * [int(code) for code in (*SENDS, *_PULLS) if code in REQUIREMENTS[port]]
        self._fields: dict[int, dict[str, ExtValue]] = {
            int(code): {} for code in REQUIREMENTS[port]
        }
        for code, requirement in REQUIREMENTS[port].items():
            for name in (requirement.topic, requirement.group, requirement.message):
                if name:
                    self._fields[int(code)][name] = "T"
        for code in SENDS:
            if code in self._fields:
                self._fields[code] |= _SEND_V2 if code in _V2 else _SEND
        if RequestCode.SEND_BATCH_MESSAGE in self._fields:
            self._fields[RequestCode.SEND_BATCH_MESSAGE]["m"] = "true"
        for code in _PULLS:
            if code in self._fields:
                self._fields[code] |= _PULL
        self.opaque = 0
        self.codes_sent: set[int] = set()
        self.answers: Counter[int] = Counter()
        """Answers by response code."""

    def learn(self, answer: RemotingCommand) -> None:
        """Take in what the answer to a request tells of its fields."""
        self.answers[answer.code] += 1
        if found := _MISSING.search(answer.remark or ""):
            self._fields.setdefault(int(found[1]), {})[found[2]] = 0

    def request(self, code: int | None = None) -> RemotingCommand:
        """A request, right in its structure or nearly so."""
        rng = self._rng
        if code is None:
            chance = rng.random()
            code = rng.choice(self._codes) if chance > 0.02 else rng.randrange(-9, 40_000)
            if chance < 0.01:
                code = rng.choice(CLOSING)
        self.codes_sent.add(code)
        oddness = rng.choice((0.0, 0.05, 0.3))
        fields = {
            name: self._value(name, known, oddness)
            for name, known in self._fields.get(code, {}).items()
            if rng.random() >= oddness / 4
        }
        if rng.random() < 0.05:
            fields[rng.choice(TEXTS)] = rng.choice(NUMBERS)
        body = odd_body(rng, code)
        if rng.random() < 0.1:
            body = damaged(rng, body)
        self.opaque += 1
        flag = rng.choice((0, 0, 0, 0, 0, 0, 0, 2, 1, 3))
        remark = rng.choice((None, None, None, "", "r", "é"))
        # The packed form has 16 bits for the code.
        serialize_type = rng.randrange(2) if -(2**15) <= code < 2**15 else 0
        command = RemotingCommand(
            code, fields, body, self.opaque, flag, remark, serialize_type=serialize_type
        )
        if self._has_account and rng.random() < 0.8:
            self.sign(command)
            if rng.random() < 0.05:
                command.ext_fields[rng.choice((ACCESS_KEY, SIGNATURE))] = rng.choice(TEXTS)
        return command

    def frames(self, count: int) -> Iterator[bytes]:
        """Frames in a row; the last one may be no frame at all, which ends the connection."""
        for _ in range(count):
            yield encode(self.request())
        if self._rng.random() < 0.3:
            yield damaged(self._rng, encode(self.request()))
        elif self._rng.random() < 0.1:
            yield odd_bytes(self._rng)

    def _value(self, name: str, known: ExtValue, oddness: float) -> ExtValue:
        rng = self._rng
        chance = rng.random()
        if chance < oddness / 2:
            number: ExtValue = rng.choice(NUMBERS)
            return number
        if chance < oddness:
            return rng.choice(TEXTS)
        if "opic" in name or name == "b":
            return rng.choice(PLACES)
        if "roup" in name or name == "a":
            return rng.choice(CLIENT_GROUPS)
        if isinstance(known, int):
            return rng.randrange(5) if rng.random() < 0.5 else known
        return known
