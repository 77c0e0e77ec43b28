"""Request handlers of a name server (DefaultRequestProcessor.java).

Theory of operation. Every request is answered at once except a change of the KV configuration: its
answer waits until the shell has the file on disk, so that a SUCCESS survives a crash. The name
server's own configuration cannot be set over the wire: RocketMQ's UPDATE_NAMESRV_CONFIG let a peer
choose a file and its content (CVE-2023-37582), and nothing here needs it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from enum import Enum
from itertools import islice

import attrs

from trioha.checksum import crc32
from trioha.config import NamesrvConfig, key_of, without_secret
from trioha.errors import CommandError, RemoteProtocolError
from trioha.journal import EventSink
from trioha.namesrv.kv_config import ORDER_TOPIC_NAMESPACE, KvConfig
from trioha.namesrv.masterships import Claim, Masterships
from trioha.namesrv.registered_names import check_registered_names
from trioha.namesrv.route_info import (
    MASTER_ID,
    TOPICS_PER_BROKER_MAX,
    BrokerAddress,
    RouteInfoManager,
    queues_of,
)
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.remoting.node_proofs import NodeProofs
from trioha.remoting.refusal_notes import RefusalNotes
from trioha.remoting.requests import answer_late
from trioha.wire.bodies import DataVersion, encode_kv_table, encode_topic_list
from trioha.wire.codes import VERSION_V4_9_4, LanguageCode, RequestCode, ResponseCode
from trioha.wire.keyring import Keyring
from trioha.wire.names import check_topic
from trioha.wire.progress import Progress
from trioha.wire.registration import SMALL_BYTES, RegistrationReader
from trioha.wire.remoting_command import ExtValue, RemotingCommand
from trioha.wire.route import QueueData

EPOCH_NONCE_CHARS_MAX = 64
"""Brokers send 16 hexadecimal digits; the answer to a rejected claim repeats them."""
TOPICS_PER_TURN = 8_192
"""Topics of one registration that are read in a turn: 30 ms."""
UNSAVED_MAX = 1024
"""Limit of answers that wait for the disk; each is a request of an administrator."""


@attrs.frozen
class UnsavedKv:
    """The new content of the KV file, and the requests whose answers wait for it."""

    version: int
    data: bytes
    waiting: list[tuple[Channel, RemotingCommand]]

    def answer(self, failure: str | None = None) -> None:
        """Answer every waiting request: the file is on disk, or `failure` tells why not."""
        for channel, request in self.waiting:
            if failure is None:
                response = request.response()
            else:
                remark = f"changed, but not on disk: {failure}"
                response = request.response(ResponseCode.SYSTEM_ERROR, remark)
            answer_late(channel, request, response)


class NamesrvProcessor:
    """Handlers of one name server, and its tables."""

    def __init__(
        self,
        config: NamesrvConfig,
        kv: KvConfig,
        events: EventSink,
        keyring: Keyring | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """With a `keyring`, only brokers that know one of its secrets register, renew that, and
        unregister."""
        self._config = config
        self._kv = kv
        self._events = events
        self._refusals = RefusalNotes(events)
        self.proofs = NodeProofs(keyring or Keyring(), self._refusals, random_bytes)
        self._taken_version = self._saved_version = kv.version
        self._waiting: list[tuple[Channel, RemotingCommand]] = []
        self.routes = RouteInfoManager(config.broker_channel_expired_time)
        self._masterships = Masterships()

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.PUT_KV_CONFIG: self._put_kv,
            RequestCode.GET_KV_CONFIG: self._get_kv,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._list_kv,
            **self.proofs.guarded(
                self._refusals.watched(
                    {
                        RequestCode.REGISTER_BROKER: self._register,
                        RequestCode.UNREGISTER_BROKER: self._unregister,
                        RequestCode.QUERY_DATA_VERSION: self._query_data_version,
                    }
                )
            ),
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._topic_list(self.routes.unit_topics),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._topic_list(self.routes.unit_sub_topics),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._topic_list(
                self.routes.unit_sub_ununit_topics
            ),
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
        }

    # Time and connections.

    @property
    def next_deadline_ms(self) -> int | None:
        return self.routes.next_deadline_ms

    def on_time(self, instant: Instant) -> None:
        """Remove the brokers that have expired, and close their connections."""
        for broker, channel in self.routes.expire(instant.now_ms):
            self._events.event("broker_expired", **_fields(broker))
            channel.close_nowait("its broker has expired")

    def channel_closed(self, channel: Channel) -> None:
        for broker in self.routes.channel_closed(channel):
            fields = _fields(broker)
            self._events.event("broker_unregistered", **fields, reason="connection closed")

    # The KV file.

    @property
    def has_unsaved(self) -> bool:
        """The shell has not taken the newest change yet."""
        return self._kv.version != self._taken_version

    @property
    def is_on_disk(self) -> bool:
        return self._kv.version == self._saved_version

    def take_unsaved(self) -> UnsavedKv:
        """Return the file to write; the caller answers its requests, by `saved` or `answer`."""
        waiting, self._waiting = self._waiting, []
        self._taken_version = self._kv.version
        return UnsavedKv(self._kv.version, self._kv.encode(), waiting)

    def saved(self, unsaved: UnsavedKv) -> None:
        """Note that the file is on disk, and answer the requests."""
        self._saved_version = unsaved.version
        unsaved.answer()

    def _put_kv(self, channel: Channel, request: RemotingCommand, _: Instant) -> None:
        self._check_room()
        self._kv.put(request.ext_str("namespace"), request.ext_str("key"), request.ext_str("value"))
        request.detach(frozenset())
        self._waiting.append((channel, request))

    def _delete_kv(
        self, channel: Channel, request: RemotingCommand, _: Instant
    ) -> RemotingCommand | None:
        self._check_room()
        if not self._kv.delete(request.ext_str("namespace"), request.ext_str("key")):
            return request.response()
        request.detach(frozenset())
        self._waiting.append((channel, request))
        return None

    def _check_room(self) -> None:
        if len(self._waiting) >= UNSAVED_MAX:
            raise CommandError(ResponseCode.SYSTEM_BUSY, "too many changes wait for the disk")

    def _get_kv(self, _: Channel, request: RemotingCommand, __: Instant) -> RemotingCommand:
        namespace, key = request.ext_str("namespace"), request.ext_str("key")
        value = self._kv.get(namespace, key)
        if value is None:
            raise CommandError(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {namespace:.80} Key: {key:.80}",
            )
        return request.response(ext_fields={"value": value})

    def _list_kv(self, _: Channel, request: RemotingCommand, __: Instant) -> RemotingCommand:
        namespace = request.ext_str("namespace")
        table = self._kv.list(namespace)
        if table is None:
            raise CommandError(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace:.80}"
            )
        return request.response(body=encode_kv_table(table))

    # Brokers.

    def _register(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        """Read the topics, some in each turn; then apply the registration in one."""
        reading = request.progress
        if not isinstance(reading, _Reading):
            body = request.body_bytes()
            crc = request.ext_int("bodyCrc32", 0)
            if crc and crc != crc32(body) & 0x7FFFFFFF:
                raise CommandError(ResponseCode.SYSTEM_ERROR, "crc32 not match")
            reading = _Reading(request, body)
            is_read = len(body) <= SMALL_BYTES and reading.read()
        else:
            is_read = reading.read()
        if is_read:
            return self._apply(channel, request, reading, instant)
        request.progress = reading
        channel.go_on_nowait(request)
        return None

    def _apply(
        self, channel: Channel, request: RemotingCommand, reading: _Reading, instant: Instant
    ) -> RemotingCommand:
        broker, ha_server_addr = reading.broker, reading.ha_server_addr
        claim = None
        if broker.broker_id == MASTER_ID:
            claim = Claim(
                broker.address,
                ha_server_addr,
                request.ext_int("epoch", 0),
                _nonce_of(request),
                request.ext_bool("epochInDoubt"),
            )
            newest = self._masterships.judge(broker.broker_name, claim, instant.now_ms)
            if newest is not None:
                return self._refuse_claim(request, broker, claim, newest)
        registered = self.routes.register(
            broker,
            ha_server_addr,
            reading.reader.data_version,
            reading.queues,
            channel,
            instant.now_ms,
        )
        if registered.is_new:
            self._events.event("broker_registered", **_fields(broker))
        ext_fields: dict[str, ExtValue] = {}
        if registered.master is not None:
            ext_fields["haServerAddr"] = registered.master.ha_server_addr
            ext_fields["masterAddr"] = registered.master.master_addr
        if claim is not None:
            held_ms = self._masterships.held_ms(broker.broker_name, claim, instant.now_ms)
            if held_ms is not None:
                # From this a master that was away knows that its claim is older than its absence.
                ext_fields["epochHeldMs"] = held_ms
        order = self._kv.list(ORDER_TOPIC_NAMESPACE)
        order_body = b"" if order is None else encode_kv_table(order)
        return request.response(ext_fields=ext_fields, body=order_body)

    def _refuse_claim(
        self, request: RemotingCommand, broker: BrokerAddress, claim: Claim, newest: Claim
    ) -> RemotingCommand:
        """Reject the claim of a deposed master; the answer names the new one."""
        self._events.event(
            "master_refused",
            **_fields(broker),
            epoch=claim.epoch,
            newest_epoch=newest.epoch,
            master=newest.address,
        )
        return request.response(
            ResponseCode.FENCED_MASTER_EPOCH,
            f"{broker.broker_name}: {newest.address} is master since epoch {newest.epoch}, "
            f"epoch {claim.epoch} is over; follow {newest.address} as a slave",
            {
                "epoch": newest.epoch,
                "epochNonce": newest.nonce,
                "masterAddr": newest.address,
                "haServerAddr": newest.ha_server_addr,
            },
        )

    def _unregister(self, _: Channel, request: RemotingCommand, __: Instant) -> RemotingCommand:
        broker = _broker(request)
        if self.routes.unregister(broker):
            self._events.event("broker_unregistered", **_fields(broker), reason="asked")
        return request.response()

    def _query_data_version(
        self, _: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        changed, held = self.routes.query_data_version(
            _broker(request), DataVersion.decode(request.body_bytes()), instant.now_ms
        )
        body = b"" if held is None else held.encode()
        return request.response(ext_fields={"changed": changed}, body=body)

    def _wipe_write_perm(
        self, _: Channel, request: RemotingCommand, __: Instant
    ) -> RemotingCommand:
        count = self.routes.wipe_write_perm(request.ext_str("brokerName"))
        return request.response(ext_fields={"wipeTopicCount": count})

    def _add_write_perm(self, _: Channel, request: RemotingCommand, __: Instant) -> RemotingCommand:
        count = self.routes.add_write_perm(request.ext_str("brokerName"))
        return request.response(ext_fields={"addTopicCount": count})

    # Routes and topics.

    def _route(self, _: Channel, request: RemotingCommand, __: Instant) -> RemotingCommand:
        topic = request.ext_str("topic")
        route = self.routes.pick_route(topic)
        if route is None:
            check_topic(topic)
            raise CommandError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {topic:.255}",
            )
        if self._config.order_message_enable:
            order = self._kv.get(ORDER_TOPIC_NAMESPACE, topic)
            route = attrs.evolve(route, order_topic_conf=order)
        strict = request.version >= VERSION_V4_9_4 or request.ext_bool("acceptStandardJsonOnly")
        # Other clients get the bytes of RocketMQ 4.9, which has no such field.
        needs_it = request.language is LanguageCode.RUST
        return request.response(body=route.encode(strict, acting_master=needs_it))

    def _cluster_info(self, _: Channel, request: RemotingCommand, __: Instant) -> RemotingCommand:
        return request.response(body=self.routes.cluster_info().encode())

    def _topics(self, _: Channel, request: RemotingCommand, __: Instant) -> RemotingCommand:
        return request.response(body=encode_topic_list(self.routes.topics()))

    def _topics_of_cluster(
        self, _: Channel, request: RemotingCommand, __: Instant
    ) -> RemotingCommand:
        topics = self.routes.topics_of_cluster(request.ext_str("cluster"))
        return request.response(body=encode_topic_list(topics))

    def _system_topics(self, _: Channel, request: RemotingCommand, __: Instant) -> RemotingCommand:
        topics, address = self.routes.system_topics()
        return request.response(body=encode_topic_list(topics, address))

    def _topic_list(self, topics: Callable[[], list[str]]) -> Handler:
        def answer(_: Channel, request: RemotingCommand, __: Instant) -> RemotingCommand:
            return request.response(body=encode_topic_list(topics()))

        return answer

    def _delete_topic(self, _: Channel, request: RemotingCommand, __: Instant) -> RemotingCommand:
        self.routes.delete_topic(request.ext_str("topic"), request.ext_str("clusterName", ""))
        return request.response()

    # Configuration.

    def _update_config(self, _: Channel, __: RemotingCommand, ___: Instant) -> RemotingCommand:
        raise CommandError(
            ResponseCode.NO_PERMISSION,
            "a name server's configuration is not settable over the wire; change its file or flags",
        )

    def _get_config(self, _: Channel, request: RemotingCommand, __: Instant) -> RemotingCommand:
        lines = [
            f"{key}={_property(without_secret(key, getattr(self._config, field.name)))}\n"
            for field in attrs.fields(NamesrvConfig)
            for key in (key_of(field),)
        ]
        return request.response(body="".join(lines).encode())


class _Reading(Progress):
    """A registration whose topics are being read. Nothing of it counts before all are."""

    def __init__(self, request: RemotingCommand, body: bytes) -> None:
        """Errors: CommandError, RemoteProtocolError; from `read` as well."""
        super().__init__(2 * len(body))
        self.broker = _broker(request)
        self.ha_server_addr = request.ext_str("haServerAddr", "")
        self.reader = RegistrationReader(
            body, compressed=request.ext_bool("compressed"), version=request.version
        )
        self.queues: dict[str, QueueData] = {}

    def read(self) -> bool:
        """Read topics for one turn; return whether all are read."""
        broker = self.broker
        some = list(islice(self.reader.topics, TOPICS_PER_TURN))
        names = [topic.topic_name for topic in some]
        addresses = (broker.address, self.ha_server_addr)
        check_registered_names(broker.cluster, broker.broker_name, addresses, names)
        for topic in some:
            self.queues[topic.topic_name] = queues_of(broker.broker_name, topic)
        if len(self.queues) > TOPICS_PER_BROKER_MAX:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR,
                f"registration refused: a broker has more than {TOPICS_PER_BROKER_MAX} topics",
            )
        return len(some) < TOPICS_PER_TURN


def _broker(request: RemotingCommand) -> BrokerAddress:
    return BrokerAddress(
        request.ext_str("clusterName"),
        request.ext_str("brokerName"),
        request.ext_int("brokerId"),
        request.ext_str("brokerAddr"),
    )


def _nonce_of(request: RemotingCommand) -> str:
    """The nonce of a claim's term, in hexadecimal; "" for a claim without one."""
    nonce = request.ext_str("epochNonce", "")
    if len(nonce) > EPOCH_NONCE_CHARS_MAX:
        raise RemoteProtocolError(f"epochNonce has {len(nonce)} characters")
    return nonce


def _fields(broker: BrokerAddress) -> Mapping[str, str | int]:
    return {
        "broker": broker.broker_name,
        "id": broker.broker_id,
        "address": broker.address,
        "cluster": broker.cluster,
    }


def _property(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return str(value.value)
    # A line break in a value must not make a second line.
    return str(value).replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
