"""A small Trio client for any RocketMQ 4 cluster: producer, consumers, administration."""

from trioha.client.admin import Admin, QueueProgress, open_admin
from trioha.client.cluster import ClusterConfig
from trioha.client.delivery import ConsumeLater
from trioha.client.errors import NoRoute, SendOutcomeUnknown, SendRefused
from trioha.client.message import (
    ConsumeFrom,
    Message,
    MessageModel,
    MessageQueue,
    PullResult,
    PullStatus,
    ReceivedMessage,
    SendResult,
    SendStatus,
)
from trioha.client.producer import Producer, ProducerConfig, open_producer
from trioha.client.pull_consumer import PullConsumer, open_pull_consumer
from trioha.client.push_consumer import PushConsumer, open_push_consumer
from trioha.client.queue_task import PushConsumerConfig
from trioha.client.transactions import (
    TransactionalProducer,
    TransactionResult,
    TransactionState,
    open_transactional_producer,
)
from trioha.config.tls_files import ClientTls

__all__ = [
    "Admin",
    "ClientTls",
    "ClusterConfig",
    "ConsumeFrom",
    "ConsumeLater",
    "Message",
    "MessageModel",
    "MessageQueue",
    "NoRoute",
    "Producer",
    "ProducerConfig",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "PushConsumerConfig",
    "QueueProgress",
    "ReceivedMessage",
    "SendOutcomeUnknown",
    "SendRefused",
    "SendResult",
    "SendStatus",
    "TransactionResult",
    "TransactionState",
    "TransactionalProducer",
    "open_admin",
    "open_producer",
    "open_pull_consumer",
    "open_push_consumer",
    "open_transactional_producer",
]
