"""Senders that keep every outcome: what was acknowledged, refused, or cut off before its answer.

Each sender is a thread with one connection and a window of requests under way. Nothing is tried
again, so a message was handed over exactly once, and what a log holds twice is the broker's doing.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import attrs

from support.histories.messages import Place, Put, make_body
from support.processes.admin import receive_frame
from support.processes.faults import processor_s
from support.processes.rig import Node
from trioha.client.message import Message, MessageQueue
from trioha.client.send_header import send_batch_command, send_command
from trioha.wire.codes import ResponseCode
from trioha.wire.message_id import decode_message_id
from trioha.wire.remoting_command import RemotingCommand, decode_frame, encode

PATIENCE_S = 60.0
ANSWER_S = 20.0
STORED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
"""Answers after which the message is in the master's log."""
_GROUP = "reliability"


@attrs.define(eq=False)
class Sent:
    """One message and what became of its request."""

    name: str
    size: int
    crc: int
    code: int | None = None
    """None: the connection ended before the answer."""
    place: Place | None = None
    """Place in the answer; a batch's answer tells the first message's physical offset only."""
    elapsed_s: float = 0.0
    """Time until the answer, by the load's clock."""

    @property
    def stored(self) -> bool:
        return self.code in STORED

    @property
    def put(self) -> Put:
        """Put for the judge."""
        answered = "acknowledged" if self.stored else "refused"
        return Put(
            name=self.name,
            client=self.name.rpartition("-")[0],
            outcome="unknown" if self.code is None else answered,
            place=self.place,
            body=(self.size, self.crc),
            detail=str(self.code),
        )


@attrs.frozen(kw_only=True)
class Mix:
    """Mix of messages. Chances are per request."""

    queues: int = 4
    small_bytes_max: int = 300
    large_bytes_min: int = 0
    large_chance: float = 0.03
    large_bytes_max: int = 60_000
    batch_chance: float = 0.08
    batch_max: int = 8


class Load:
    """Several senders at one broker."""

    def __init__(
        self,
        address: str,
        topic: str,
        *,
        seed: int,
        label: str = "m",
        senders: int = 4,
        window: int = 4,
        pace_s: float = 0.0,
        stops_at_refusal: bool = False,
        mix: Mix | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`pace_s`: how long each sender rests between two requests. `clock`: in seconds."""
        self._stops_at_refusal = stops_at_refusal
        self.sent: list[Sent] = []
        self._mix = mix or Mix()
        self._clock = clock
        self._pace_s = pace_s
        self._changed = threading.Condition()
        self._stopping = False
        self._acked = 0
        self._failed: list[str] = []
        self._running = senders
        self._threads = [
            threading.Thread(
                target=self._guard,
                args=(address, topic, f"{label}-{number}", random.Random(f"{seed}:{number}")),
                kwargs={"window": window},
                name=f"load[{label}-{number}]",
                daemon=True,
            )
            for number in range(senders)
        ]

    def start(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def latest(self, count: int) -> list[Sent]:
        """The last messages that have an answer."""
        return [message for message in self.sent if message.code is not None][-count:]

    def sent_from_now(self, count: int, within_s: float = PATIENCE_S) -> list[Sent]:
        """Messages sent from now on that have an answer, once `count` more are acknowledged."""
        already = len(self.sent)
        self.wait_for_more(count, within_s)
        return [message for message in self.sent[already:] if message.code is not None]

    @property
    def acked(self) -> int:
        return self._acked

    @property
    def codes(self) -> Counter[int | None]:
        """Count of each answer's code; None: no answer came."""
        return Counter(message.code for message in self.sent)

    def wait_for_acked(self, count: int, within_s: float = PATIENCE_S) -> None:
        """Wait until `count` messages are stored by the broker's own word."""
        with self._changed:
            arrived = self._changed.wait_for(
                lambda: self._acked >= count or not self._running, within_s
            )
        assert arrived, f"{self._acked} of {count} acknowledged in {within_s} s: {self}"
        assert self._acked >= count, f"{self._acked} of {count} acknowledged, then the end: {self}"

    def wait_for_more(self, count: int, within_s: float = PATIENCE_S) -> None:
        """Wait for `count` acknowledgements from now on."""
        self.wait_for_acked(self._acked + count, within_s)

    def stop(self, within_s: float = PATIENCE_S) -> Load:
        """Send no more, wait for what is under way. Connections that broke are not a failure."""
        with self._changed:
            self._stopping = True
        return self.join(within_s)

    def join(self, within_s: float = PATIENCE_S) -> Load:
        deadline = time.monotonic() + within_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            assert not thread.is_alive(), f"{thread.name} hangs: {self}"
        assert not self._failed, self._failed
        return self

    def __repr__(self) -> str:
        return f"Load({dict(self.codes)}, failed={self._failed})"

    def _guard(self, address: str, topic: str, label: str, rng: random.Random, window: int) -> None:
        try:
            self._send(address, topic, label, rng, window)
        except OSError:
            pass  # the broker is gone; what was under way has no outcome
        except Exception as error:
            self._failed.append(f"{label}: {error!r}")
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def _send(self, address: str, topic: str, label: str, rng: random.Random, window: int) -> None:
        host, port = address.rsplit(":", 1)
        pending: dict[int, tuple[list[Sent], float]] = {}
        number, can_send = 0, True
        with socket.create_connection((host, int(port)), ANSWER_S) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while True:
                while can_send and len(pending) < window and not self._stopping:
                    command, messages = self._request(topic, f"{label}-{number}", rng)
                    command.opaque = number
                    number += 1
                    pending[command.opaque] = (messages, self._clock())
                    with self._changed:
                        self.sent += messages
                    try:
                        connection.sendall(encode(command))
                    except OSError:
                        can_send = False  # answers that came before the broker went are read
                    if self._pace_s:
                        time.sleep(self._pace_s)
                if not pending:
                    return
                answer = decode_frame(receive_frame(connection))
                messages, since = pending.pop(answer.opaque)
                self._take(answer, messages, self._clock() - since)
                if self._stops_at_refusal and answer.code not in STORED:
                    return

    def _request(
        self, topic: str, name: str, rng: random.Random
    ) -> tuple[RemotingCommand, list[Sent]]:
        mix = self._mix
        queue = MessageQueue(topic, "", rng.randrange(mix.queues))
        count = rng.randint(2, mix.batch_max) if rng.random() < mix.batch_chance else 1
        large = count == 1 and rng.random() < mix.large_chance
        least, most = (
            (mix.large_bytes_min, mix.large_bytes_max) if large else (0, mix.small_bytes_max)
        )
        messages, bodies = [], []
        for part in range(count):
            part_name = name if count == 1 else f"{name}.{part}"
            body = make_body(part_name, rng.randint(least, most))
            bodies.append(body)
            messages.append(Sent(part_name, len(body), zlib.crc32(body)))
        wall_ms = int(time.time() * 1000)
        made = [
            Message(topic, body, tags=f"t{len(body) % 3}", keys=(sent.name,))
            for sent, body in zip(messages, bodies, strict=True)
        ]
        if count == 1:
            return send_command(_GROUP, made[0], name, queue, wall_ms), messages
        ids = [sent.name for sent in messages]
        return send_batch_command(_GROUP, made, ids, queue, wall_ms), messages

    def _take(self, answer: RemotingCommand, messages: list[Sent], elapsed_s: float) -> None:
        for message in messages:
            message.code = answer.code
            message.elapsed_s = elapsed_s
        if answer.code not in STORED:
            return
        offset = answer.ext_int("queueOffset")
        queue_id = answer.ext_int("queueId")
        phy_offset = decode_message_id(answer.ext_str("msgId").split(",")[0])[2]
        for step, message in enumerate(messages):
            message.place = Place(queue_id, offset + step, phy_offset if step == 0 else -1)
        with self._changed:
            self._acked += len(messages)
            self._changed.notify_all()


class Bystander:
    """An honest client that must not notice what others do to the broker.

    It sends small messages one after the other. Of each it remembers how long the broker worked
    until the answer, for any client: in processor time, since on a loaded machine all clients wait,
    whatever the others do. An answer that takes `ANSWER_S` does not count as one.
    """

    def __init__(self, broker: Node, topic: str) -> None:
        self.load = Load(
            broker.address,
            topic,
            seed=0,
            label="by",
            senders=1,
            window=1,
            stops_at_refusal=True,
            mix=Mix(queues=1, large_chance=0.0, batch_chance=0.0),
            clock=partial(processor_s, broker.process.pid),
        )

    def wait_for_more(self, count: int = 20) -> None:
        """It is served now."""
        self.load.wait_for_more(count)

    @property
    def most_work_s(self) -> float:
        """The broker's processor time between a request and its answer, at most."""
        return max((sent.elapsed_s for sent in self.load.sent), default=0.0)


@contextlib.contextmanager
def undisturbed(
    broker: Node,
    topic: str,
    most_work_s: float = 0.5,
    ok: Callable[[int | None], bool] | None = None,
) -> Iterator[Bystander]:
    """While the block runs another connection sends, and every answer is good and in time."""
    bystander = Bystander(broker, topic)
    bystander.load.start()
    bystander.wait_for_more()
    try:
        yield bystander
        bystander.wait_for_more()
    finally:
        bystander.load.stop()
    is_ok = ok or (lambda code: code == ResponseCode.SUCCESS)
    bad = {code: n for code, n in bystander.load.codes.items() if not is_ok(code)}
    assert not bad, f"a bystander's sends were answered {bad}"
    worked_s = bystander.most_work_s
    assert worked_s < most_work_s, f"the broker worked {worked_s:.2f} s, and a bystander waited"
