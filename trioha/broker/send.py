"""Sends: requests 10, 310 and 320 (SendMessageProcessor.java, AbstractSendMessageProcessor.java).

Theory of operation. A send is checked (`SendCheck`), made into a record, sent to dead letters or to
a delay level if need be, and leaves with exactly one answer: now or, when it waits for disk or
slave, from the `PutPipeline`. A oneway send is stored in the same way and never answered, so it
does not wait for disk or slave.

The stored property string is the client's without WAIT and with CLUSTER. Most are of a known shape
(`PropertyShapes`) and only need their id put between two constants; the others are parsed into a
map and joined again. `BatchSender` stores batches; a large one goes on in the turns after this one.

A message with TIMER_DELAY_SEC or its like waits in a topic without consumers until it is due
(`trioha.broker.timers`). A delay level has precedence, as in RocketMQ.

A message with TRAN_MSG is the half message of a transaction (`trioha.broker.transactions`): it is
stored in a topic without consumers, and delivered when its producer commits it.
"""

from __future__ import annotations

from random import Random
from typing import Final

from trioha.broker.delay import DelayLevels
from trioha.broker.groups import GroupTable
from trioha.broker.message_fields import index_keys, is_true, tags_code
from trioha.broker.property_shape import PropertyShapes
from trioha.broker.put_message import PutPipeline, remark_of
from trioha.broker.send_batch import (
    BatchProgress,
    BatchSender,
    delay_level,
    illegal,
    message_id,
    message_ids,
)
from trioha.broker.send_check import SendCheck
from trioha.broker.send_header import SendHeader, field, read_send_header
from trioha.broker.timers.records import ADDED_BYTES, divert_timer, handle_of
from trioha.broker.topics import TopicTable
from trioha.broker.transactions.records import COPY_PROPERTIES_BYTES, divert_half
from trioha.broker.transactions.service import Transactions
from trioha.config import BrokerConfig
from trioha.errors import CommandError, RemoteProtocolError
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.store.put_values import PutMessage, PutResult
from trioha.wire.bodies import TopicConfig
from trioha.wire.codes import VERSION_V3_4_9, Perm, RequestCode, ResponseCode, SysFlag
from trioha.wire.fields_template import FieldsTemplate
from trioha.wire.names import (
    RETRY_PREFIX,
    TIMER_TOPIC,
    TRANS_HALF_TOPIC,
    dlq_topic,
)
from trioha.wire.properties import (
    CLUSTER,
    DELAY,
    PGROUP,
    PROPERTIES_BYTES_MAX,
    TRAN_MSG,
    UNIQ_KEY,
    WAIT,
    decode_properties,
    encode_properties,
)
from trioha.wire.remoting_command import Buffer, ExtValue, RemotingCommand
from trioha.wire.timers import WANTED, is_timer

DLQ_QUEUE_NUMS: Final = 1
# Looking a member up in its enum costs more than the comparison it is for.
_BORNHOST_V6: Final = int(SysFlag.BORNHOST_V6)
_HOST_V6_BITS: Final = int(SysFlag.BORNHOST_V6 | SysFlag.STOREHOST_V6)
_MULTI_TAGS: Final = int(SysFlag.MULTI_TAGS)
_TRANSACTION_MASK: Final = int(SysFlag.TRANSACTION_MASK)
_SMALL_PROPERTIES: Final = PROPERTIES_BYTES_MAX // 2
"""Below it a string stays legal whatever is added to it here."""


class SendProcessor:
    """Turns sends into records and answers them."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicTable,
        groups: GroupTable,
        pipeline: PutPipeline,
        levels: DelayLevels,
        transactions: Transactions,
        store_host: bytes,
        rng: Random,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._pipeline = pipeline
        self._levels = levels
        self._transactions = transactions
        self._store_host = store_host
        self._rng = rng
        self._check = SendCheck(config, topics, pipeline, rng)
        self._cluster = config.broker_cluster_name
        self._body_bytes_max = config.max_message_size
        self._region = config.region_id
        self._trace_on = "true" if config.trace_on else "false"
        self._store_host_bit = int(SysFlag.STOREHOST_V6) if len(store_host) == 20 else 0
        self._host_id = store_host.hex().upper().encode()
        """Beginning of an offset id; the offset follows as 16 digits."""
        self._answer_fields = FieldsTemplate(
            ("msgId", "queueId", "queueOffset"),
            {"MSG_REGION": self._region, "TRACE_ON": self._trace_on},
        )
        self._shapes = PropertyShapes(config.broker_cluster_name)
        self._batches = BatchSender(config, pipeline, store_host)

    @property
    def config(self) -> BrokerConfig:
        """brokerPermission is read anew with each send: an administrator may change it."""
        return self._check.config

    @config.setter
    def config(self, config: BrokerConfig) -> None:
        self._check.config = config

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send,
        }

    def send(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        """Store the message or batch of `request`; the answer, or None when it comes later."""
        added: dict[str, ExtValue] = {}
        try:
            header = read_send_header(request)
            topic = self._check.topic_of(request, header, instant)
            queue_id = self._check.choose_queue(header, topic)
            earlier_ids = b""
            if header.is_batch:
                sys_flag = self._sys_flag(channel, header, topic)
                body = self._body_of(request)
                batch = self._batches.put(
                    channel.peer_host, request, header, queue_id, sys_flag, body, instant
                )
                if batch is None:
                    channel.go_on_nowait(request)
                    return None
                outcome = batch
                if isinstance(request.progress, BatchProgress):
                    queue_id = request.progress.queue_id
                    earlier_ids = request.progress.message_ids
            else:
                message, wait = self._message_of(channel, request, header, topic, queue_id, instant)
                wait = wait and not request.is_oneway
                outcome = self._pipeline.put(message, wait=wait, instant=instant)
                if message.topic == TRANS_HALF_TOPIC and outcome.result is not None:
                    self._transactions.prepared(message, outcome.result)
                    # The proxy of RocketMQ 5 names the transaction by this id when it ends it.
                    added["transactionId"] = decode_properties(message.properties).get(UNIQ_KEY)
                elif message.topic == TIMER_TOPIC:
                    added["recallHandle"] = self._recall_handle(message)
        except CommandError as error:
            return self.refuse(request, error.code, error.remark)
        except RemoteProtocolError as error:
            return self.refuse(request, ResponseCode.SYSTEM_ERROR, str(error))
        if request.is_oneway:
            return None
        result = outcome.result
        if result is None:
            return self.refuse(request, outcome.code, outcome.remark)
        response = self.answer(request, outcome.code, result, queue_id, earlier_ids, added)
        if outcome.wait_flush or outcome.wait_slave:
            self._pipeline.when_safe(outcome, instant, channel, response)
            return None
        return response

    def receive(
        self, channel: Channel, request: RemotingCommand, header: SendHeader, instant: Instant
    ) -> tuple[PutMessage, int]:
        """Check and make one message without storing it; and the queue it was meant for.

        Errors: CommandError when it is refused.
        """
        topic = self._check.topic_of(request, header, instant)
        queue_id = self._check.choose_queue(header, topic)
        message, _ = self._message_of(channel, request, header, topic, queue_id, instant)
        if message.topic == TRANS_HALF_TOPIC:
            raise illegal("a reply cannot be transactional")
        return message, queue_id

    def _message_of(
        self,
        channel: Channel,
        request: RemotingCommand,
        header: SendHeader,
        topic: TopicConfig,
        queue_id: int,
        instant: Instant,
    ) -> tuple[PutMessage, bool]:
        """The message to store, sent to dead letters or delayed as need be; and its WAIT.

        Errors: CommandError when it is illegal or transactional.
        """
        body = self._body_of(request)
        sys_flag = self._sys_flag(channel, header, topic)
        if not sys_flag & _TRANSACTION_MASK:
            key = self._shapes.id_of(header.properties)
            shape = self._shapes.last
            if (
                key is not None
                and shape.is_plain
                and len(header.properties) < _SMALL_PROPERTIES
                and not header.topic.startswith(RETRY_PREFIX)
            ):
                return (
                    PutMessage(
                        topic.topic_name,
                        queue_id,
                        header.flag,
                        sys_flag,
                        header.born_timestamp,
                        channel.peer_host,
                        self._store_host,
                        body,
                        shape.head + key + shape.tail,
                        shape.tags_code,
                        (key,),
                        header.reconsume_times,
                    ),
                    shape.wait,
                )
        properties = decode_properties(header.properties)
        wait = is_true(properties.pop(WAIT, "true"))
        properties[CLUSTER] = self._cluster
        message = PutMessage(
            topic.topic_name,
            queue_id,
            header.flag,
            sys_flag,
            header.born_timestamp,
            channel.peer_host,
            self._store_host,
            body,
            b"",
            tags_code(properties),
            index_keys(properties),
            header.reconsume_times,
        )
        self._file(message, properties, request, header, instant)
        return message, wait

    def _file(
        self,
        message: PutMessage,
        properties: dict[str, str],
        request: RemotingCommand,
        header: SendHeader,
        instant: Instant,
    ) -> None:
        """Choose the queue that the properties ask for, and encode them.

        Errors: CommandError when the message is illegal or transactional.
        """
        level = delay_level(properties) if DELAY in properties else 0
        if message.sys_flag & _TRANSACTION_MASK or TRAN_MSG in properties:
            self._divert_half(message, properties, level, instant)
        if message.topic.startswith(RETRY_PREFIX) and self._is_exhausted(request, header, instant):
            self._to_dead_letters(message, properties, instant)
            level = 0
        bytes_max = PROPERTIES_BYTES_MAX
        if level > 0:
            for name in WANTED:
                properties.pop(name, None)
            self._levels.divert(message, properties, level, instant.wall_ms)
        elif is_timer(properties) and self._divert_timer(message, properties, instant):
            bytes_max -= ADDED_BYTES
        else:
            message.properties = encode_properties(properties)
        if message.topic == TRANS_HALF_TOPIC:
            bytes_max -= COPY_PROPERTIES_BYTES
        if len(message.properties) > bytes_max:
            raise illegal(f"properties of {len(message.properties)} bytes, at most {bytes_max}")

    def refuse(self, request: RemotingCommand, code: int, remark: str | None) -> RemotingCommand:
        """An answer without a message id; clients read region and trace switch off it too."""
        if isinstance(request.progress, BatchProgress):
            remark = request.progress.remark(remark)
        return request.response(
            code, remark, {"MSG_REGION": self._region, "TRACE_ON": self._trace_on}
        )

    def answer(
        self,
        request: RemotingCommand,
        code: ResponseCode,
        result: PutResult,
        queue_id: int,
        earlier_ids: bytes = b"",
        added: dict[str, ExtValue] | None = None,
    ) -> RemotingCommand:
        """The answer to a message or batch that is stored.

        `earlier_ids` are those of a batch's messages that earlier turns have stored; `added` are
        fields that few answers have.
        """
        offsets = result.phy_offsets
        if len(offsets) > 1:
            ids = earlier_ids + message_ids(self._host_id, offsets)
        else:
            ids = earlier_ids + message_id(self._host_id, result.phy_offset)
        remark = remark_of(code) if code else None
        if added:
            all_fields: dict[str, ExtValue] = {
                "msgId": ids.decode(),
                "queueId": queue_id,
                "queueOffset": result.queue_offset,
                "MSG_REGION": self._region,
                "TRACE_ON": self._trace_on,
                **added,
            }
            return request.response(code, remark, all_fields)
        values = [ids, str(queue_id).encode(), str(result.queue_offset).encode()]
        fields = self._answer_fields.fill(request.serialize_type, values)
        return request.response(code, remark, encoded_fields=fields)

    def _body_of(self, request: RemotingCommand) -> Buffer:
        body = request.body
        # `bytes` nearly always, and apart, since `memoryview` is looked up by its name.
        if not isinstance(body, bytes) and not isinstance(body, (memoryview, bytearray)):
            body = request.body_bytes()
        if len(body) > self._body_bytes_max:
            raise illegal(f"body of {len(body)} bytes, maxMessageSize is {self._body_bytes_max}")
        return body

    def _sys_flag(self, channel: Channel, header: SendHeader, topic: TopicConfig) -> int:
        # The host bits describe what we store, not what the client believes.
        sys_flag = header.sys_flag & ~_HOST_V6_BITS | self._store_host_bit
        if len(channel.peer_host) == 20:
            sys_flag |= _BORNHOST_V6
        if topic.topic_filter_type == "MULTI_TAG":
            sys_flag |= _MULTI_TAGS
        return sys_flag

    def _divert_half(
        self, message: PutMessage, properties: dict[str, str], level: int, instant: Instant
    ) -> None:
        """Make a half message of a transactional one.

        Errors: CommandError when this broker takes none, or not this one.
        """
        if message.reconsume_times > 0 and level > 0:
            # A consumer older than 4.6.1 sends a committed message back with its old properties.
            message.sys_flag &= ~_TRANSACTION_MASK
            return
        if not is_true(properties.get(TRAN_MSG)):
            if message.sys_flag & _TRANSACTION_MASK:
                # RocketMQ stores it where neither a consumer nor a commit ever finds it.
                raise illegal("its sysFlag says that it is transactional, TRAN_MSG does not")
            return
        if self.config.reject_transaction_message:
            raise CommandError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self.config.broker_ip1}] sending transaction message is forbidden",
            )
        if level > 0 or is_timer(properties):
            # RocketMQ's broker delays the half message, and then drops it.
            raise illegal("a transactional message cannot be delayed")
        if not properties.get(PGROUP):
            raise illegal("a transactional message without PGROUP: no producer could end it")
        self._transactions.admit(instant.wall_ms)
        divert_half(message, properties)

    def _is_exhausted(self, request: RemotingCommand, header: SendHeader, instant: Instant) -> bool:
        group_name = header.topic[len(RETRY_PREFIX) :]
        group = self._groups.find(group_name, instant.wall_ms)
        if group is None:
            raise CommandError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {group_name}",
            )
        times_max = group.retry_max_times
        if request.version >= VERSION_V3_4_9:
            times_max = request.ext_int(field(request, "maxReconsumeTimes"), times_max)
        return header.reconsume_times >= times_max

    def _to_dead_letters(
        self, message: PutMessage, properties: dict[str, str], instant: Instant
    ) -> None:
        topic = self._topics.create_internal(
            dlq_topic(message.topic[len(RETRY_PREFIX) :]),
            DLQ_QUEUE_NUMS,
            Perm.READ | Perm.WRITE,
            instant.wall_ms,
        )
        message.topic = topic.topic_name
        message.queue_id = self._rng.randrange(DLQ_QUEUE_NUMS)
        for name in (DELAY, *WANTED):
            properties.pop(name, None)

    def _divert_timer(
        self, message: PutMessage, properties: dict[str, str], instant: Instant
    ) -> bool:
        """Let a message wait until it is due; False if it is due now.

        Errors: CommandError when it cannot wait so.
        """
        if not divert_timer(message, properties, self.config, instant.wall_ms):
            return False
        self._topics.create_internal(TIMER_TOPIC, 1, Perm.READ | Perm.WRITE, instant.wall_ms)
        return True

    def _recall_handle(self, message: PutMessage) -> str:
        return handle_of(decode_properties(message.properties), self.config.broker_name)
