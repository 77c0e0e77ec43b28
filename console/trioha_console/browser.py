"""Finds messages and reads them as a bystander: never as a consumer of a group.

A consume queue tells where in the log a message lies (request 321), and the log is read there
(request 33). Nothing is pulled, nobody is registered, no progress moves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import attrs

from trioha.errors import CommandError, TriohaError
from trioha.watch.snapshot import ClusterSnapshot
from trioha.wire import fastjson
from trioha.wire.codes import RequestCode, ResponseCode, SysFlag
from trioha.wire.compression import inflate
from trioha.wire.json_fields import integer, list_of, object_of
from trioha.wire.message_id import decode_message_id, offset_message_id
from trioha.wire.properties import Property
from trioha.wire.record import Record, decode_records
from trioha.wire.remoting_command import RemotingCommand
from trioha_console.query import By, Query

_AT_ONCE = 16
"""Requests to one node that wait at a time: a broker has others to serve."""
_FAR_FUTURE_MS = 2**63 - 1

T = TypeVar("T")
Ask = Callable[[str, RemotingCommand], Awaitable[RemotingCommand]]


@attrs.frozen
class Found:
    """A message and where it lies."""

    record: Record
    broker: str
    address: str
    """Address of the node from which the message was read."""
    body: bytes
    """Inflated where that is possible."""
    is_compressed: bool
    """The body is still compressed: the method is not supported, or the data is damaged."""

    @property
    def message_id(self) -> str:
        """The sender's id, or the broker's if the sender gave none."""
        return self.record.properties.get(Property.UNIQ_KEY) or self.offset_id

    @property
    def offset_id(self) -> str:
        return offset_message_id(self.record.store_host, self.record.phy_offset)


@attrs.frozen
class _Place:
    """One queue on its master."""

    broker: str
    address: str
    queue_id: int
    begin: int
    end: int


class Browser:
    """Questions about messages to the masters of a snapshot."""

    def __init__(self, ask: Ask, snapshot: ClusterSnapshot) -> None:
        self._ask = ask
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._masters = {
            one.name: one.master.address for one in snapshot.sets if one.master is not None
        }

    async def find(self, query: Query) -> list[Found]:
        """The messages asked for, oldest first; of one that vanished meanwhile nothing is said.

        Errors: TriohaError in words.
        """
        if not self._masters:
            raise TriohaError("no broker is known yet")
        if query.by is By.ID:
            found = await self._by_id(query)
        elif query.by is By.KEY:
            found = await self._by_key(query)
        else:
            found = await self._by_place(query)
        found.sort(key=lambda one: (one.record.store_timestamp, one.record.phy_offset))
        return found[-query.count :] if query.by is By.LAST else found[: query.count]

    # By id and key.

    async def _by_id(self, query: Query) -> list[Found]:
        try:
            host, port, phy_offset = decode_message_id(query.key)
        except (TriohaError, ValueError):
            host, port, phy_offset = "", 0, 0
        for broker, address in self._masters.items():
            if address == f"{host}:{port}":
                return await self._view(broker, address, phy_offset)
        if not query.topic:
            raise TriohaError(
                f"no broker of this cluster gave out {query.key}; if it is a sender's id, name"
                f" the topic: `TOPIC id {query.key}`"
            )
        return await self._query(attrs.evolve(query, count=32), unique=True)

    async def _by_key(self, query: Query) -> list[Found]:
        return await self._query(query, unique=False)

    async def _query(self, query: Query, *, unique: bool) -> list[Found]:
        parts = await _all(
            self._query_at(broker, address, query, unique)
            for broker, address in self._wanted(query)
        )
        return [one for part in parts for one in part]

    async def _query_at(self, broker: str, address: str, query: Query, unique: bool) -> list[Found]:
        command = RemotingCommand(
            RequestCode.QUERY_MESSAGE,
            {
                "topic": query.topic,
                "key": query.key,
                "maxNum": query.count,
                "beginTimestamp": 0,
                "endTimestamp": _FAR_FUTURE_MS,
                "_UNIQUE_KEY_QUERY": "true" if unique else None,
            },
        )
        response = await self._ask(address, command)
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        found = _read(response, broker, address)
        # The index compares hashes; we compare the keys.
        if unique:
            return [one for one in found if one.message_id == query.key]
        return [one for one in found if query.key in one.record.keys]

    # By place in a queue.

    async def _by_place(self, query: Query) -> list[Found]:
        places = [
            place
            for part in await _all(
                self._places_at(broker, address, query) for broker, address in self._wanted(query)
            )
            for place in part
        ]
        if not places:
            raise TriohaError(f"no broker has a queue of topic {query.topic}")
        # The newest fifty of all queues are among the newest fifty of each; of many queues fewer
        # will do, for a topic is written to evenly.
        share = query.count
        if query.by is By.LAST and len(places) > 4:
            share = max(4, -(-2 * query.count // len(places)))
        parts = await _all(self._read_place(query, place, share) for place in places)
        return [one for part in parts for one in part]

    async def _places_at(self, broker: str, address: str, query: Query) -> list[_Place]:
        command = RemotingCommand(RequestCode.GET_TOPIC_STATS_INFO, {"topic": query.topic})
        try:
            body = _success(await self._ask(address, command)).body_bytes()
        except CommandError:
            return []  # this broker does not have the topic
        table = object_of(fastjson.loads(body), "topic stats").get("offsetTable")
        if not isinstance(table, fastjson.ObjectKeyMap):
            return []
        places = []
        for key, value in table.items():
            queue, ends = object_of(key, "queue"), object_of(value, "offsets")
            queue_id = integer(queue, "queueId")
            if query.queue_id is None or query.queue_id == queue_id:
                begin, end = integer(ends, "minOffset"), integer(ends, "maxOffset")
                places.append(_Place(broker, address, queue_id, begin, end))
        return places

    async def _read_place(self, query: Query, place: _Place, count: int) -> list[Found]:
        if place.end <= place.begin:
            return []
        first = await self._first(query, place, count)
        command = RemotingCommand(
            RequestCode.QUERY_CONSUME_QUEUE,
            {
                "topic": query.topic,
                "queueId": place.queue_id,
                "index": first,
                "count": min(count, place.end - first),
                "consumerGroup": "",
            },
        )
        if first >= place.end:
            return []
        body = _success(await self._ask(place.address, command)).body_bytes()
        entries = list_of(object_of(fastjson.loads(body), "queue").get("queueData"), "queueData")
        offsets = [integer(object_of(entry, "entry"), "physicOffset") for entry in entries]
        parts = await _all(self._view(place.broker, place.address, one) for one in offsets)
        return [one for part in parts for one in part]

    async def _first(self, query: Query, place: _Place, count: int) -> int:
        if query.by is By.LAST:
            return max(place.begin, place.end - count)
        if query.by is By.OFFSET:
            return max(place.begin, query.number)
        command = RemotingCommand(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            {"topic": query.topic, "queueId": place.queue_id, "timestamp": query.number},
        )
        return _success(await self._ask(place.address, command)).ext_int("offset")

    async def _view(self, broker: str, address: str, phy_offset: int) -> list[Found]:
        command = RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": phy_offset})
        async with self._gate:
            response = await self._ask(address, command)
        if response.code != ResponseCode.SUCCESS:
            return []  # it was there a moment ago, and its segment is deleted now
        return _read(response, broker, address)

    def _wanted(self, query: Query) -> Sequence[tuple[str, str]]:
        if not query.broker:
            return list(self._masters.items())
        if query.broker not in self._masters:
            names = ", ".join(sorted(self._masters))
            raise TriohaError(f"no master of {query.broker} is known; there are {names}")
        return [(query.broker, self._masters[query.broker])]


async def _all(questions: Iterable[Awaitable[list[T]]]) -> list[list[T]]:
    """All at once. Errors: those of the first that fails, once all have ended."""
    results = await asyncio.gather(*questions, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


def _success(response: RemotingCommand) -> RemotingCommand:
    if response.code != ResponseCode.SUCCESS:
        raise CommandError(response.code, response.remark or "refused without a remark")
    return response


def _read(response: RemotingCommand, broker: str, address: str) -> list[Found]:
    found = []
    for record in decode_records(_success(response).body_bytes()):
        body, is_compressed = record.body, False
        if record.sys_flag & SysFlag.COMPRESSED:
            inflated = inflate(record.body, record.sys_flag)
            body, is_compressed = (record.body, True) if inflated is None else (inflated, False)
        found.append(Found(record, broker, address, body, is_compressed))
    return found
