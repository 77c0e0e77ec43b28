"""Every setting of a node: RocketMQ's key names and defaults, our own beside them.

A field is the RocketMQ key in snake_case; `key_of` gives the key back. Where a value comes from
(file, environment, flag) is the business of `trioha.config.sources`.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

import attrs

from trioha.config.tls import TlsSettings


class BrokerRole(Enum):
    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class FlushDiskType(Enum):
    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


def setting(default: Any, doc: str, *, key: str | None = None, ours: bool = False) -> Any:
    """A config field: its default, one line of help with the unit, its key if not camelCase."""
    return attrs.field(default=default, metadata={"doc": doc, "key": key, "ours": ours})


def key_of(field: attrs.Attribute[Any]) -> str:
    """RocketMQ's name of a field: ``ha_listen_port`` -> ``haListenPort``."""
    key = field.metadata.get("key")
    if key is not None:
        return str(key)
    head, *tail = field.name.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in tail)


_SECRET = re.compile(
    r"secret|password|passwd|token|accesskey|credential|initauthenticationuser", re.IGNORECASE
)


def is_secret(key: str) -> bool:
    """Return whether a setting of this key must be shown to nobody."""
    # The name of a file tells no secret, and an operator has to see which one counts.
    return _SECRET.search(key) is not None and not key.lower().endswith("file")


HIDDEN = "******"
"""Stands in place of a secret, wherever settings are shown."""


def without_secret(key: str, value: object) -> object:
    """Return a setting's value as it may be shown: `HIDDEN` in place of a secret that is set."""
    return HIDDEN if value and is_secret(key) else value


DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


@attrs.frozen(kw_only=True)
class BrokerConfig(TlsSettings):
    """One broker. Sizes in bytes, times in milliseconds unless the name or text says otherwise."""

    # Names, role and addresses of this broker.
    broker_cluster_name: str = setting("DefaultCluster", "cluster this broker belongs to")
    broker_name: str = setting("broker-a", "replica set: master and slaves share it")
    broker_id: int = setting(0, "0 is the master, 1.. are slaves")
    broker_role: BrokerRole = setting(BrokerRole.ASYNC_MASTER, "ASYNC_MASTER, SYNC_MASTER or SLAVE")
    broker_ip1: str = setting(
        "", "address clients are told; empty: ask the system", key="brokerIP1"
    )
    broker_ip2: str = setting("", "address slaves are told; empty: brokerIP1", key="brokerIP2")
    namesrv_addr: str = setting("", "name servers as host:port;host:port")
    cluster_secret_file: str = setting(
        "",
        "file of the secret that nodes and operators prove themselves with; empty: "
        "TRIOHA_CLUSTER_SECRET, else none",
        ours=True,
    )
    insecure: bool = setting(
        False, "listen beyond this machine without a cluster secret", ours=True
    )
    anonymous_clients: bool = setting(
        False, "listen beyond this machine with a cluster secret and without accounts", ours=True
    )
    bind_address: str = setting("0.0.0.0", "address to listen on", ours=True)
    listen_port: int = setting(10911, "port for clients; 0 picks a free one")
    ha_listen_port: int = setting(-1, "port for slaves; -1: listenPort + 1, 0 picks a free one")
    vip_channel: bool = setting(
        True, "also listen on listenPort - 2, as every slave expects", ours=True
    )
    admin_http_port: int = setting(
        -1, "port of /metrics, /livez, /readyz; -1: listenPort + 3, 0 a free one", ours=True
    )
    admin_http_enable: bool = setting(True, "serve /metrics, /livez and /readyz", ours=True)
    broker_permission: int = setting(6, "4 read + 2 write")

    # Store.
    store_path_root_dir: str = setting("~/store", "directory of the store")
    adopt_store: bool = setting(
        False, "open a store that was the store of a broker with another name", ours=True
    )
    store_path_commit_log: str = setting("", "directory of the log; empty: <root>/commitlog")
    mapped_file_size_commit_log: int = setting(1073741824, "bytes of one log segment")
    mapped_file_size_consume_queue: int = setting(6000000, "bytes of one consume queue file")
    max_message_size: int = setting(4194304, "largest body in bytes")
    flush_disk_type: FlushDiskType = setting(FlushDiskType.ASYNC_FLUSH, "ASYNC_FLUSH or SYNC_FLUSH")
    flush_interval_commit_log: int = setting(500, "ms after an append until it is flushed, at most")
    flush_interval_consume_queue: int = setting(1000, "ms between consume queue flushes")
    sync_flush_timeout: int = setting(
        5000, "ms a put, or a change of offsets, topics or groups, waits for the disk"
    )
    check_crc_on_recover: bool = setting(
        True, "verify body checksums in recovery", key="checkCRCOnRecover"
    )
    delete_when: str = setting("04", "hours of the day at which old segments go, ; between them")
    file_reserved_time: int = setting(72, "hours a segment is kept")
    disk_max_used_space_ratio: int = setting(75, "percent of disk from which old segments go early")
    disk_space_warning_level_ratio: int = setting(
        90, "percent of disk from which writes are refused"
    )
    clean_resource_interval: int = setting(10000, "ms between looks at the disk")
    message_index_enable: bool = setting(True, "keep index files for queries by key")
    message_index_safe: bool = setting(False, "recover from the index's checkpoint too")
    max_hash_slot_num: int = setting(5000000, "hash slots of an index file")
    max_index_num: int = setting(20000000, "entries of an index file")
    access_message_in_memory_max_ratio: int = setting(40, "percent of RAM taken as cached log")
    max_transfer_bytes_on_message_in_memory: int = setting(262144, "bytes of one pull, cached")
    max_transfer_count_on_message_in_memory: int = setting(32, "messages of one pull, cached")
    max_transfer_bytes_on_message_in_disk: int = setting(65536, "bytes of one pull, from disk")
    max_transfer_count_on_message_in_disk: int = setting(8, "messages of one pull, from disk")
    cold_data_flow_control_enable: bool = setting(
        True,
        "read messages that have left the page cache in a thread, and so many bytes of them as the "
        "next two settings allow; false: at once, and producers wait meanwhile (RocketMQ: false)",
    )
    cg_cold_read_threshold: int = setting(
        3145728,
        "bytes a second that one group may have read from disk while messages arrive; 0: no limit",
    )
    global_cold_read_threshold: int = setting(
        104857600,
        "bytes a second that all groups may have read from disk while messages arrive; 0: no limit",
    )
    default_query_max_num: int = setting(32, "messages of one query by unique key")
    max_msgs_num_batch: int = setting(64, "messages of one query by key")

    # Replication.
    ha_master_address: str = setting("", "master's HA host:port; empty: ask the name server")
    ha_send_heartbeat_interval: int = setting(5000, "ms of idle link before a heartbeat")
    ha_housekeeping_interval: int = setting(20000, "ms of silence before a link is closed")
    ha_transfer_batch_size: int = setting(
        1048576, "log bytes in one transfer frame (RocketMQ: 32768; its slaves take up to 4 MiB)"
    )
    ha_slave_fallbehind_max: int = setting(268435456, "bytes behind which a slave counts as absent")
    slave_timeout: int = setting(
        3000, "ms a put, or a change of offsets, topics or groups, waits for a slave"
    )
    ha_empty_slave_from: str = setting(
        "first", "an empty slave gets the log from its first or last segment", ours=True
    )
    ha_reconnect_interval: int = setting(
        5000, "ms between a slave's attempts to connect", ours=True
    )
    ha_restart_patience: int = setting(
        1500,
        "ms a master that comes back waits for who knows of a successor; never failed over, "
        "it goes on then",
        ours=True,
    )
    ha_confirm_patience: int = setting(
        30000,
        "ms an ASYNC_MASTER whose machine went down waits for its slaves' word on what it lost",
        ours=True,
    )
    ha_secret: str = setting("", "shared secret of HA peers; empty: no authentication", ours=True)
    ha_secret_file: str = setting("", "file of haSecret, read again when it changes", ours=True)
    ha_allowed_peers: str = setting(
        "", "CIDR list that may follow without the secret, ; between", ours=True
    )
    slave_sync_interval: int = setting(
        10000, "ms between a slave's metadata pulls, while its master does not tell it", ours=True
    )
    slave_read_enable: bool = setting(False, "send slow consumers to the slave")
    enable_property_filter: bool = setting(False, "take SQL92 filters from consumers")
    filter_support_retry: bool = setting(
        False, "with enablePropertyFilter: SQL92 filters also apply to messages that are retried"
    )
    offset_check_in_slave: bool = setting(False, "a slave corrects wrong pull offsets itself")

    # Access control, and the secrets of nodes.
    acl_enable: bool = setting(False, "check every request against the accounts of aclFile")
    acl_file: str = setting(
        "",
        "accounts as in RocketMQ's plain_acl.yml, with acl/*.yml beside it; "
        "empty: <root>/config/plain_acl.yml",
        ours=True,
    )
    authentication_enabled: bool = setting(
        False, "check that a user of RocketMQ 5's ACL has signed every request"
    )
    authorization_enabled: bool = setting(
        False, "check every request against the policies of its user, too"
    )
    auth_config_path: str = setting(
        "", "folder of auth.json, the users and policies; empty: <root>/config"
    )
    init_authentication_user: str = setting(
        "", 'super user to begin with: {"username":"…","password":"…"}'
    )
    inner_client_authentication_credentials: str = setting(
        "", 'super user that nodes sign as: {"accessKey":"…","secretKey":"…"}'
    )

    # A group that elects its own master.
    enable_d_leger_commit_log: bool = setting(
        False, "DLEDGER mode: a Raft group keeps the log and elects its own master"
    )
    d_leger_group: str = setting("", "name of the Raft group; empty: brokerName")
    d_leger_peers: str = setting(
        "", "its founders as n0-host:port;n1-host:port, the port being their listenPort"
    )
    d_leger_self_id: str = setting("", "which of the members this is: n0, n1, …")
    preferred_leader_id: str = setting("", "members that lead whenever they can, ; between several")
    d_leger_secret: str = setting("", "shared secret of the members; empty: haSecret", ours=True)
    d_leger_secret_file: str = setting(
        "", "file of dLegerSecret, read again when it changes", ours=True
    )
    d_leger_heartbeat_interval: int = setting(150, "ms between a leader's heartbeats", ours=True)
    d_leger_election_timeout_min: int = setting(
        1000, "ms without a leader until an election, at least", ours=True
    )
    d_leger_election_timeout_max: int = setting(
        2000, "ms without a leader until an election, at most", ours=True
    )
    d_leger_early_election: bool = setting(
        True,
        "elect when all connections with the leader have ended; false: only after silence",
        ours=True,
    )
    d_leger_lease_reads: bool = setting(
        True,
        "a leader answers on a lease; false: asks a majority, where clocks may jump",
        ours=True,
    )
    d_leger_replicated_in_memory: bool = setting(
        False, "count bytes as held before their fsync: a power cut may lose them", ours=True
    )

    # Topics, groups and clients.
    default_topic_queue_nums: int = setting(8, "queues of an auto-created topic at most")
    auto_create_topic_enable: bool = setting(True, "create topics on first send")
    auto_create_subscription_group: bool = setting(True, "create groups on first use")
    cluster_topic_enable: bool = setting(True, "keep a topic named like the cluster")
    broker_topic_enable: bool = setting(True, "keep a topic named like the broker")
    trace_topic_enable: bool = setting(False, "keep RMQ_SYS_TRACE_TOPIC")
    trace_on: bool = setting(True, "TRACE_ON in send answers")
    region_id: str = setting("DefaultRegion", "MSG_REGION in send answers")
    reject_transaction_message: bool = setting(False, "refuse half messages")
    transaction_time_out: int = setting(6000, "ms until an open transaction is checked first")
    transaction_check_interval: int = setting(60000, "ms between its checks")
    transaction_check_max: int = setting(15, "checks until it is discarded")
    timer_wheel_enable: bool = setting(True, "take messages with a delay in seconds")
    timer_max_delay_sec: int = setting(259200, "seconds that they may be delayed at most")
    timer_precision_ms: int = setting(
        1000, "ms of one slot in recall handles and for RocketMQ: 100, 200, 500 or 1000"
    )
    timer_roll_window_slot: int = setting(
        172800, "slots after which a waiting message is copied to the log's end"
    )
    recall_message_enable: bool = setting(True, "let producers take delayed messages back")
    enable_retry_topic_v2: bool = setting(
        False, "put popped messages that come again into %RETRY%group+topic, else group_topic"
    )
    long_polling_enable: bool = setting(True, "park pulls that find nothing")
    short_polling_time_mills: int = setting(1000, "ms a pull is parked when long polling is off")
    notify_consumer_ids_changed_enable: bool = setting(
        True, "tell consumers when their group changes"
    )
    broker_fast_failure_enable: bool = setting(
        True, "reject requests that have waited too long with SYSTEM_BUSY"
    )
    wait_time_mills_in_send_queue: int = setting(200, "ms until a waiting send is rejected")
    wait_time_mills_in_pull_queue: int = setting(5000, "ms until a waiting pull or pop is rejected")
    wait_time_mills_in_heartbeat_queue: int = setting(
        31000, "ms until a waiting heartbeat is rejected"
    )
    wait_time_mills_in_transaction_queue: int = setting(
        3000, "ms until the waiting end of a transaction is rejected"
    )
    wait_time_mills_in_ack_queue: int = setting(
        3000, "ms until a waiting acknowledgement or change of an invisible time is rejected"
    )
    message_delay_level: str = setting(DELAY_LEVELS, "delays of levels 1..n")
    flush_delay_offset_interval: int = setting(10000, "ms between writes of delayOffset.json")
    flush_consumer_offset_interval: int = setting(5000, "ms between writes of consumerOffset.json")
    register_name_server_period: int = setting(30000, "ms between registrations, within 10..60 s")
    register_broker_timeout_mills: int = setting(6000, "ms one registration may take")
    server_channel_max_idle_time_seconds: int = setting(
        120, "seconds until an idle connection closes"
    )
    client_channel_expired_timeout: int = setting(
        120000, "ms without heartbeat until a client is gone", ours=True
    )

    # Limits of ours.
    frame_timeout: int = setting(10000, "ms a frame may take to arrive once begun", ours=True)
    connections_max: int = setting(10000, "connections at a time", ours=True)
    outbox_bytes_max: int = setting(
        33554432, "unread response bytes until a client is closed", ours=True
    )
    traffic_bytes_max: int = setting(
        536870912,
        "bytes of frames being read, waiting requests and unread answers, over all connections",
        ours=True,
    )
    first_frame_timeout: int = setting(
        30000, "ms until a connection on which nothing was asked closes", ours=True
    )
    shutdown_grace: int = setting(
        10000, "ms for slaves and clients to finish at shutdown", ours=True
    )
    journal_bytes_max: int = setting(67108864, "bytes of journal kept on disk", ours=True)


@attrs.frozen(kw_only=True)
class NamesrvConfig(TlsSettings):
    """One name server."""

    cluster_secret_file: str = setting(
        "",
        "file of the secret that brokers prove themselves with; empty: TRIOHA_CLUSTER_SECRET, "
        "else none",
        ours=True,
    )
    insecure: bool = setting(
        False, "listen beyond this machine without a cluster secret", ours=True
    )
    bind_address: str = setting("0.0.0.0", "address to listen on", ours=True)
    listen_port: int = setting(9876, "port; 0 picks a free one")
    admin_http_port: int = setting(
        -1, "port of /metrics, /livez, /readyz; -1: listenPort + 3, 0 a free one", ours=True
    )
    admin_http_enable: bool = setting(True, "serve /metrics, /livez and /readyz", ours=True)
    kv_config_path: str = setting("~/namesrv/kvConfig.json", "file of the KV configuration")
    order_message_enable: bool = setting(False, "hand out orderTopicConf with routes")
    broker_channel_expired_time: int = setting(
        120000, "ms of silence until a broker is gone", ours=True
    )
    server_channel_max_idle_time_seconds: int = setting(
        120, "seconds until an idle connection closes"
    )
    frame_timeout: int = setting(10000, "ms a frame may take to arrive once begun", ours=True)
    connections_max: int = setting(10000, "connections at a time", ours=True)
    outbox_bytes_max: int = setting(
        33554432, "unread response bytes until a client is closed", ours=True
    )
    traffic_bytes_max: int = setting(
        134217728,
        "bytes of frames being read, waiting requests and unread answers, over all connections",
        ours=True,
    )
    first_frame_timeout: int = setting(
        30000, "ms until a connection on which nothing was asked closes", ours=True
    )
    acl_enable: bool = setting(
        False, "check every request but routes against the accounts of aclFile", ours=True
    )
    acl_file: str = setting(
        "",
        "accounts as in RocketMQ's plain_acl.yml, with acl/*.yml beside it; "
        "empty: plain_acl.yml beside kvConfigPath",
        ours=True,
    )
    journal_path: str = setting(
        "", "directory of the journal; empty: beside kvConfigPath", ours=True
    )
    journal_bytes_max: int = setting(16777216, "bytes of journal kept on disk", ours=True)
