"""Request 30002: a node's journal, followed from afar by long polls.

A follower asks for the events from a sequence number on and is answered at once if there are any,
else with the next ones that the journal writes out, or with none when its patience ends. It asks
again from where the answer stopped. So a slow reader costs the node nothing: the node buffers no
events for it, and answers from memory or, later, from disk. The newest mebibyte is in memory; one
thread reads older events, one bounded piece for one follower at a time.
"""

from __future__ import annotations

from collections import deque

import attrs
import msgpack
import trio

from trioha.errors import CommandError
from trioha.journal.file import JournalFile
from trioha.journal.history import Place, read_stretch
from trioha.journal.tail import Stretch
from trioha.remoting.channel import Channel, Instant
from trioha.services.loop.alarm import Alarm
from trioha.services.loop.clock import Clock
from trioha.services.loop.host import run_blocking
from trioha.services.loop.ringing import ring
from trioha.services.loop.signal import Signal
from trioha.wire.codes import ResponseCode
from trioha.wire.refusals import system_error
from trioha.wire.remoting_command import RemotingCommand

COUNT_MAX = 1000
"""Events in one answer."""
ANSWER_BYTES_MAX = 262_144
WAIT_MS_MAX = 30_000
"""Under the 120 s after which an idle connection closes."""
FOLLOWERS_MAX = 64
"""Polls that may be parked, and as many that may wait for the disk."""
_PLACES_MAX = 64


@attrs.define(eq=False)
class _Follower:
    channel: Channel
    request: RemotingCommand
    sequence: int
    names: frozenset[str]
    count_max: int
    deadline_ms: int


class JournalStream:
    """The followers of one node's journal."""

    def __init__(self, journal: JournalFile | None, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._parked: list[_Follower] = []
        self._behind: deque[_Follower] = deque()
        self._someone_behind = Signal()
        self._places: dict[int, Place] = {}
        self._alarm = Alarm(clock, self._next_deadline_ms, self._expire)

    def handle(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        """Answer now if there are events, else later."""
        if self._journal is None:
            raise system_error("this node keeps no journal")
        tail = self._journal.tail
        names = frozenset(filter(None, request.ext_str("names", "").split(",")))
        count_max = _number(request, "count", COUNT_MAX, COUNT_MAX)
        if "from" in request.ext_fields:
            sequence = _number(request, "from", 0, 2**63 - 1)
        else:
            last = _number(request, "last", 0, COUNT_MAX)
            sequence = tail.sequence_of_last(last, names)
            count_max = max(last, count_max)
        if sequence > tail.next_sequence:
            # The journal began anew since this follower asked last, so the follower begins anew.
            sequence = tail.first_sequence
        follower = _Follower(
            channel,
            request,
            sequence,
            names,
            count_max,
            instant.now_ms + _number(request, "waitMs", 0, WAIT_MS_MAX),
        )
        if sequence < tail.first_sequence:
            return self._read_later(follower)
        answer = self._answer(follower)
        if answer is not None or follower.deadline_ms <= instant.now_ms:
            return answer or _response(follower, Stretch((), follower.sequence), tail.next_sequence)
        self._forget_closed()
        if len(self._parked) >= FOLLOWERS_MAX:
            raise CommandError(ResponseCode.SYSTEM_BUSY, f"{FOLLOWERS_MAX} follow already")
        self._parked.append(follower)
        self._alarm.check()
        return None

    def tell_nowait(self) -> None:
        """Answer the followers that wait for events which the journal has written out."""
        waiting, self._parked = self._parked, []
        for follower in waiting:
            if follower.channel.closed:
                continue
            answer = self._answer(follower)
            if answer is None:
                self._parked.append(follower)
            else:
                follower.channel.send_nowait(answer)

    async def run(self) -> None:
        """Serve the followers until cancelled."""
        if self._journal is None:
            return
        self._journal.followers.append(self.tell_nowait)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ring, self._alarm, name="journal_stream.expiry")
                nursery.start_soon(self._read, self._journal, name="journal_stream.read")
        finally:
            self._journal.followers.remove(self.tell_nowait)

    def _answer(self, follower: _Follower) -> RemotingCommand | None:
        assert self._journal is not None
        tail = self._journal.tail
        stretch = tail.since(
            follower.sequence,
            follower.names,
            count_max=follower.count_max,
            bytes_max=ANSWER_BYTES_MAX,
        )
        if stretch is None:  # it was parked so long that its events have left the memory
            return self._read_later(follower)
        follower.sequence = stretch.next_sequence
        if not stretch.payloads:
            return None
        return _response(follower, stretch, tail.next_sequence)

    def _read_later(self, follower: _Follower) -> RemotingCommand | None:
        if len(self._behind) >= FOLLOWERS_MAX:
            return follower.request.response(
                ResponseCode.SYSTEM_BUSY, f"{FOLLOWERS_MAX} wait for the disk already"
            )
        self._behind.append(follower)
        self._someone_behind.set()
        return None

    async def _read(self, journal: JournalFile) -> None:
        while True:
            await self._someone_behind.wait()
            while self._behind:
                follower = self._behind.popleft()
                if not follower.channel.closed:
                    follower.channel.send_nowait(await self._read_for(follower, journal))

    async def _read_for(self, follower: _Follower, journal: JournalFile) -> RemotingCommand:
        place = self._places.pop(follower.sequence, None)
        try:
            found = await run_blocking(
                lambda: read_stretch(
                    journal.directory,
                    follower.sequence,
                    follower.names,
                    count_max=follower.count_max,
                    place=place,
                )
            )
        except OSError as error:
            return follower.request.response(
                ResponseCode.SYSTEM_ERROR, f"the journal cannot be read: {error.strerror}"
            )
        tail = journal.tail
        if found is None:  # those events are gone, or still on their way to the disk
            stretch = Stretch((), max(follower.sequence, tail.first_sequence))
        else:
            stretch, place = found
            self._places[stretch.next_sequence] = place
            while len(self._places) > _PLACES_MAX:
                del self._places[next(iter(self._places))]
        return _response(follower, stretch, tail.next_sequence)

    def _next_deadline_ms(self) -> int | None:
        return min((follower.deadline_ms for follower in self._parked), default=None)

    def _expire(self, instant: Instant) -> None:
        assert self._journal is not None
        due = [entry for entry in self._parked if entry.deadline_ms <= instant.now_ms]
        self._parked = [entry for entry in self._parked if entry.deadline_ms > instant.now_ms]
        for entry in due:
            end = self._journal.tail.next_sequence
            entry.channel.send_nowait(_response(entry, Stretch((), entry.sequence), end))

    def _forget_closed(self) -> None:
        self._parked = [entry for entry in self._parked if not entry.channel.closed]


def _response(follower: _Follower, stretch: Stretch, end: int) -> RemotingCommand:
    """`next` is where to ask on; `end` is the number that the node's next event will have."""
    packer = msgpack.Packer()
    body = [
        packer.pack_map_header(3),
        packer.pack("next"),
        packer.pack(stretch.next_sequence),
        packer.pack("end"),
        packer.pack(end),
        packer.pack("events"),
        packer.pack_array_header(len(stretch.payloads)),
        *stretch.payloads,
    ]
    return follower.request.response(body=b"".join(body))


def _number(request: RemotingCommand, key: str, default: int, highest: int) -> int:
    """A number of the request within 0 and `highest`. Errors: RemoteProtocolError."""
    return max(0, min(request.ext_int(key, default), highest))
