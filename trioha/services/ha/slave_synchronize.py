"""Copies the tables that a master keeps outside its log to a slave (SlaveSynchronize.syncAll).

Topics, consumer offsets, delay progress and groups, in RocketMQ's order, over the remoting port: at
once on connecting, then every `slaveSyncInterval`, and soon after a record of a topic arrived that
the tables do not know: if the master were lost now, no consumer could read it here. Java asks for
topics at port - 2; both kinds of master answer at the port itself as well. Then the slave sends the
master the offsets that consumers committed here while the master was away (see
`trioha.broker.offsets`).

A trioha master's changes come with its log (`trioha.broker.metadata`). While they do, the slave
asks for no table, and drops an answer that was on its way when they began: it may be older than a
change that has come since. The slave sends its own commits either way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import trio

from trioha.broker.offset_requests import ONLY_FORWARD_FIELD
from trioha.broker.offsets import OffsetCommit
from trioha.errors import TriohaError
from trioha.journal import EventSink
from trioha.security.node_signer import Sign, unsigned
from trioha.services.ha.master_address import MasterAddress
from trioha.services.loop.clock import Clock, sleep_until_ms
from trioha.services.loop.transport import Connect, Transport, connect
from trioha.services.remoting.client import RemotingClient, open_remoting_client, parse_address
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

PATIENCE_S = 3.0  # SlaveSynchronize.java: of each request
_HURRY_MS = 200  # new topics come in bursts: ask at most five times a second


class SlaveTables(Protocol):
    """Takes the master's tables: `trioha.broker.slave_tables`.

    Errors: TriohaError when a body cannot be understood; the table then stays as it was.
    """

    def apply_topics(self, data: bytes, /) -> object: ...
    def apply_offsets(self, data: bytes, /) -> object: ...
    def apply_delay_offsets(self, data: bytes, /) -> object: ...
    def apply_groups(self, data: bytes, /) -> object: ...
    def commits_to_tell(self) -> Sequence[OffsetCommit]: ...
    def told(self, commit: OffsetCommit) -> None: ...


class SlaveSynchronizer:
    """The four requests, and the last report to the journal about each."""

    def __init__(
        self,
        tables: SlaveTables,
        interval_ms: int,
        events: EventSink,
        clock: Clock,
        *,
        streams: Callable[[], bool],
        connect_to: Connect = connect,
        sign: Sign = unsigned,
    ) -> None:
        """`streams` tells whether the master's changes come by themselves at the moment."""
        self._items: tuple[tuple[RequestCode, str, Callable[[bytes], object]], ...] = (
            (RequestCode.GET_ALL_TOPIC_CONFIG, "topics", tables.apply_topics),
            (RequestCode.GET_ALL_CONSUMER_OFFSET, "consumer_offsets", tables.apply_offsets),
            (RequestCode.GET_ALL_DELAY_OFFSET, "delay_offsets", tables.apply_delay_offsets),
            (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "groups", tables.apply_groups),
        )
        self._tables = tables
        self._interval_ms = interval_ms
        self._events = events
        self._clock = clock
        self._streams = streams
        self._connect_to = connect_to
        self._sign = sign
        # Hash of the last body, or the last failure, of each table: only changes are reported.
        self._told: dict[str, int | str] = {}
        self._wake = trio.Event()

    def hurry_nowait(self) -> None:
        """Ask without waiting for the interval: the log holds topics that the tables lack."""
        self._wake.set()

    async def run(self, master_address: MasterAddress) -> None:
        """Keep the tables like the master's, until cancelled; its remoting address may change.

        Errors: none that the master can cause; the journal tells those.
        """
        while True:
            address = await master_address.wait_known()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._follow, address, name=f"slave_synchronize[{address}]")
                await master_address.wait_changed(address)
                nursery.cancel_scope.cancel()

    async def _follow(self, address: str) -> None:
        """Connect, pull, pause; again."""
        while True:
            transport = await self._connect(address)
            if transport is not None:
                async with open_remoting_client(
                    *parse_address(address),
                    self._clock,
                    on_closed=self.hurry_nowait,
                    transport=transport,
                    sign=self._sign,
                ) as client:
                    await self._pull_from(client)
            await sleep_until_ms(self._clock.now_ms() + self._interval_ms)

    async def _connect(self, address: str) -> Transport | None:
        reason = f"cannot connect to {address} within {PATIENCE_S:g} s"
        with trio.move_on_after(PATIENCE_S):
            try:
                return await self._connect_to(*parse_address(address))
            except (OSError, TriohaError) as error:
                reason = f"cannot connect to {address}: {error}"
        self._tell_failure("all", reason)
        return None

    async def _pull_from(self, client: RemotingClient) -> None:
        while not client.closed:
            self._wake = trio.Event()
            begun_ms = self._clock.now_ms()
            for code, table, apply in self._items:
                if not self._streams():
                    await self._pull(client, code, table, apply)
            await self._tell_commits(client)
            with trio.move_on_at((begun_ms + self._interval_ms) / 1000):
                await self._wake.wait()
            await sleep_until_ms(begun_ms + _HURRY_MS)

    async def _pull(
        self,
        client: RemotingClient,
        code: RequestCode,
        table: str,
        apply: Callable[[bytes], object],
    ) -> None:
        """Copy one table. Its failure stops no other."""
        try:
            with trio.fail_after(PATIENCE_S):
                response = await client.request(RemotingCommand(code))
        except trio.TooSlowError:
            self._tell_failure(table, f"no answer within {PATIENCE_S:g} s")
            return
        except TriohaError as error:
            self._tell_failure(table, str(error))
            return
        if response.code != ResponseCode.SUCCESS:
            self._tell_failure(table, f"answer {response.code}: {response.remark or ''}")
            return
        if self._streams():
            return
        body = response.body_bytes()
        try:
            apply(body)
        except TriohaError as error:
            self._tell_failure(table, str(error))
            return
        self._told.pop("all", None)
        if self._told.get(table) != (news := hash(body)):
            self._told[table] = news
            self._events.event("slave_synchronized", table=table)

    async def _tell_commits(self, client: RemotingClient) -> None:
        """Tell the master what consumers committed to us while it was away."""
        for commit in self._tables.commits_to_tell():
            request = RemotingCommand(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                {
                    "consumerGroup": commit.group,
                    "topic": commit.topic,
                    "queueId": commit.queue_id,
                    "commitOffset": commit.offset,
                    ONLY_FORWARD_FIELD: True,
                },
            )
            try:
                with trio.fail_after(PATIENCE_S):
                    response = await client.request(request)
            except (trio.TooSlowError, TriohaError) as error:
                self._tell_failure("commits", str(error) or f"no answer within {PATIENCE_S:g} s")
                return
            if response.code == ResponseCode.SUCCESS:
                self._tables.told(commit)

    def _tell_failure(self, table: str, reason: str) -> None:
        if self._told.get(table) != reason:
            self._told[table] = reason
            self._events.event("slave_synchronize_failed", table=table, reason=reason)
