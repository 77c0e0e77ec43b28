"""The measured rows, each with its load, its figures and the goals of trioha against Java.

A row's name is a path, so that a glob picks what belongs together: `java/send/sync/128/64` is the
Java client sending 128 bytes from 64 threads to a SYNC_MASTER with a slave. Rows of one block share
one start of the brokers in a round, whichever client they are of.

The order is that of importance, since a run may be cut short: what has a goal against Java comes
first, a master without a slave last.
"""

from __future__ import annotations

import enum
import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs
from bench.peer.protection import Protection


class Topology(enum.Enum):
    """The master's slave, if any, and whether the master waits for it."""

    ALONE = "alone"
    SLAVE = "slave"
    SYNC = "sync"

    @property
    def role(self) -> str:
        return "SYNC_MASTER" if self is Topology.SYNC else "ASYNC_MASTER"

    @property
    def has_slave(self) -> bool:
        return self is not Topology.ALONE


@attrs.frozen
class Metric:
    """One figure of a row, by the name it has in a sample."""

    key: str
    label: str
    higher_is_better: bool = False
    digits: int = 3


@attrs.frozen
class Goal:
    """Goal of trioha for one metric: a ratio to Java, or a figure of its own."""

    limit: float
    of_ratio: bool = True


@attrs.frozen(kw_only=True)
class Row:
    """One line of the report."""

    name: str
    group: str
    """The table it stands in; all rows of a group have the same metrics."""
    block: str
    scenario: str
    topology: Topology
    metrics: tuple[Metric, ...]
    goals: Mapping[str, Goal] = attrs.field(factory=dict)
    options: Mapping[str, object] = attrs.field(factory=dict)
    protection: Protection = Protection.NONE
    java_release: str = "4"
    """The release of the Java broker, as `support.peers.java` names it."""

    @property
    def client(self) -> str:
        """java, cpp, socket, or what is measured without a client's figures."""
        return self.name.partition("/")[0]


PER_S = Metric("per_s", "messages/s", higher_is_better=True, digits=0)
COLD_PER_S = Metric("cold_per_s", "messages/s cold", higher_is_better=True, digits=0)
AVERAGE = Metric("average_ms", "average ms")
P50 = Metric("p50_ms", "p50 ms")
P99 = Metric("p99_ms", "p99 ms")
CPU = Metric("master_cpu_s_per_million", "master CPU s/million", digits=1)
BARE_P50 = Metric("bare_p50_ms", "bare relay p50 ms")
FIRST = Metric("first_ms", "start to first message ms", digits=0)

SEND_METRICS = (PER_S, P50, P99, CPU)
PRODUCER_METRICS = (COLD_PER_S, PER_S, AVERAGE, CPU)
FRAME_METRICS = (P50, P99, BARE_P50)
HA_RATE = Metric("mib_per_s", "MiB/s from the first byte", higher_is_better=True, digits=0)
HA_OF_BARE = Metric("of_bare_copy", "of a bare copy", higher_is_better=True, digits=2)
HA_FIRST = Metric("first_byte_s", "exec to first byte s", digits=2)
HA_DONE = Metric("caught_up_s", "exec to caught up s", digits=2)
BLOCKED_KILL = Metric("longest_after_kill_ms", "longest send after the kill ms", digits=0)
BLOCKED_JOIN = Metric("longest_after_rejoin_ms", "longest send after the rejoin ms", digits=0)
FIRST_SEND = Metric("first_send_s", "exec to first accepted send s", digits=3)
READY = Metric("ready_s", "exec to ready line s", digits=3)
RSS = Metric("rss_mib", "RSS MiB", digits=0)
RSS_PRIVATE = Metric("private_mib", "private MiB", digits=0)
RSS_BEYOND_LOG = Metric("beyond_log_mib", "RSS without the store's files MiB", digits=0)

THREADS = (1, 8, 64)
SIZES = (128, 1024)
BATCH = 32
WAITING_TIMER_S = 7200
"""Timer messages that wait for the whole run are due after so long."""
_ASYNC_GOAL = {PER_S.key: Goal(1.3)}
_BATCH_GOAL = {PER_S.key: Goal(1.0)}
_DRAIN_GOAL = {PER_S.key: Goal(1.0)}
_TRANSACTION_GOAL = {PER_S.key: Goal(1.0)}
_E2E_GOAL = {P50.key: Goal(0.5), P99.key: Goal(0.5)}
_START_GOAL = {FIRST_SEND.key: Goal(0.25)}
_BLOCKED_GOAL = {
    BLOCKED_KILL.key: Goal(1000, of_ratio=False),
    BLOCKED_JOIN.key: Goal(1000, of_ratio=False),
}
_HA_GOAL = {
    HA_RATE.key: Goal(2.0),
    HA_OF_BARE.key: Goal(0.6, of_ratio=False),
    HA_DONE.key: Goal(0.3),
}
_SEND_GOALS: Mapping[Topology, Mapping[str, Goal]] = {
    Topology.ALONE: {},
    Topology.SLAVE: {PER_S.key: Goal(1.2), P50.key: Goal(0.8), P99.key: Goal(0.8)},
    Topology.SYNC: {PER_S.key: Goal(1.4), P50.key: Goal(0.7), P99.key: Goal(0.7)},
}
_PRODUCER_GOALS = {1: Goal(1.2), 8: Goal(1.4), 64: Goal(1.6)}
_LIFE = "life"
_CLIENTS = {"java": "Java client", "cpp": "C++ client"}


def all_rows() -> list[Row]:
    """Every row, in the order they are measured and reported."""
    return [
        *_rows_of_topology(Topology.SLAVE),
        *_rows_of_topology(Topology.SYNC),
        *_producer_rows(),
        *_node_rows(),
        *_rows_of_topology(Topology.ALONE),
        _memory_row("loaded", Topology.ALONE.value),
        *_timer_rows(),
        *protected_rows(Protection.ACL),
        *protected_rows(Protection.TLS),
    ]


def select_rows(rows: Iterable[Row], globs: Sequence[str]) -> list[Row]:
    """The rows that match one of the globs; all of them without any."""
    if not globs:
        return list(rows)
    return [row for row in rows if any(fnmatch.fnmatch(row.name, glob) for glob in globs)]


def blocks_of(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows by block, both in their order."""
    blocks: dict[str, list[Row]] = {}
    for row in rows:
        blocks.setdefault(row.block, []).append(row)
    return blocks


def protected_rows(protection: Protection) -> Iterator[Row]:
    """Yield the loads of the Java client that are measured with a protection of both makes."""
    titles = {
        Protection.NONE: "no protection",
        Protection.ACL: "access control, requests signed",
        Protection.TLS: "TLS",
    }

    def row(name: str, scenario: str, metrics: tuple[Metric, ...], **options: object) -> Row:
        return Row(
            name=f"java/{protection.value}/{name}",
            group=f"Java client, {titles[protection]}: "
            + ("a backlog is drained" if scenario == "drain" else "sync send, binary headers"),
            block=protection.value,
            scenario=scenario,
            topology=Topology.ALONE,
            metrics=metrics,
            goals={PER_S.key: Goal(1.0)},
            options={"bytes": 128, "header": "ROCKETMQ", **options},
            protection=protection,
        )

    yield row("alone/128/64", "send", SEND_METRICS, threads=64)
    yield row("drain", "drain", (PER_S, FIRST, CPU))


def _producer_rows() -> Iterator[Row]:
    """Yield the rows of RocketMQ's own load program at a SYNC_MASTER with a slave."""
    for threads in THREADS:
        goal = _PRODUCER_GOALS[threads]
        yield Row(
            name=f"producer/send/sync/128/{threads}",
            group="RocketMQ's own Producer: sync send, JSON headers, by threads",
            block="producer",
            scenario="producer",
            topology=Topology.SYNC,
            metrics=PRODUCER_METRICS,
            goals={COLD_PER_S.key: goal, PER_S.key: goal},
            options={"bytes": 128, "threads": threads, "header": "JSON"},
        )


def _rows_of_topology(topology: Topology) -> Iterator[Row]:
    yield from _send_rows("java", "send", "sync send, binary headers", "ROCKETMQ", topology)
    if topology.has_slave:
        yield from _send_rows("java", "send-json", "sync send, JSON headers", "JSON", topology)
    yield from _other_client_rows("java", topology)
    # The C++ client knows JSON headers only.
    yield from _send_rows("cpp", "send", "sync send, JSON headers", "JSON", topology)
    yield from _other_client_rows("cpp", topology)
    yield Row(
        name=f"socket/send/{topology.value}/128/1",
        group="A blocking socket: one frame after the other, made before",
        block=topology.value,
        scenario="frames",
        topology=topology,
        metrics=FRAME_METRICS,
        options={"bytes": 128, "header": "JSON"},
    )


def _send_rows(
    client: str, kind: str, group: str, header: str, topology: Topology
) -> Iterator[Row]:
    for size in SIZES:
        for threads in THREADS:
            goals = dict(_SEND_GOALS[topology])
            if threads == max(THREADS):
                goals[CPU.key] = Goal(1.0)
            yield Row(
                name=f"{client}/{kind}/{topology.value}/{size}/{threads}",
                group=f"{_CLIENTS[client]}: {group}",
                block=topology.value,
                scenario="send",
                topology=topology,
                metrics=SEND_METRICS,
                goals=goals,
                options={"bytes": size, "threads": threads, "header": header},
            )


def _other_client_rows(client: str, topology: Topology) -> Iterator[Row]:
    header = "ROCKETMQ" if client == "java" else "JSON"
    title = _CLIENTS[client]

    def row(kind: str, group: str, size: int, width: str, **more: object) -> Row:
        scenario, metrics, goals = {
            "async": ("async", SEND_METRICS, _ASYNC_GOAL),
            "batch": ("send", SEND_METRICS, _BATCH_GOAL),
            "transactions": ("send", SEND_METRICS, _TRANSACTION_GOAL),
            "filtered": ("filtered", (PER_S, FIRST, CPU), _DRAIN_GOAL),
            "drain": ("drain", (PER_S, FIRST, CPU), _DRAIN_GOAL),
            "e2e": ("e2e", (P50, P99), _E2E_GOAL),
        }[kind]
        return Row(
            name=f"{client}/{kind}/{topology.value}/{size}{width}",
            group=f"{title}: {group}",
            block=topology.value,
            scenario=scenario,
            topology=topology,
            metrics=metrics,
            goals=goals,
            options={"bytes": size, "header": header, **more},
        )

    for in_flight in (64, 256) if client == "java" else (256,):
        yield row(
            "async", "async send, by sends in flight", 128, f"/{in_flight}", in_flight=in_flight
        )
    if client == "java":
        # A Java broker stores a batch of the C++ client as one message: nothing to compare.
        text = f"batches of {BATCH}, by threads"
        if topology is Topology.ALONE:
            yield row("batch", text, 128, "/1", threads=1, batch=BATCH)
        yield row("batch", text, 128, "/8", threads=8, batch=BATCH)
        yield row("batch", text, 1024, "/8", threads=8, batch=BATCH)
    if topology is Topology.ALONE:
        yield row("drain", "push consumer drains a backlog", 128, "")
        if client == "java":
            for percent in (1, 50):
                text = "SQL92 filter takes so many percent of a backlog"
                yield row("filtered", text, 128, f"/{percent}", percent=percent)
            text = "transactions that commit at once, by threads"
            yield row("transactions", text, 128, "/64", threads=64, transactional=True)
    if client == "java" or topology is not Topology.SLAVE:
        # At this pace an asynchronous slave costs nothing: once is enough.
        yield row("e2e", "end to end at 100 messages/s", 128, "/100", rate=100)


def _node_rows() -> Iterator[Row]:
    def row(
        name: str,
        group: str,
        scenario: str,
        metrics: tuple[Metric, ...],
        goals: Mapping[str, Goal],
        topology: Topology = Topology.ALONE,
        block: str = "",
    ) -> Row:
        return Row(
            name=name,
            group=group,
            block=block or name,
            scenario=scenario,
            topology=topology,
            metrics=metrics,
            goals=goals,
        )

    catch_up = (HA_RATE, HA_OF_BARE, HA_FIRST, HA_DONE)
    text = "Empty slave joins a filled master"
    yield row("ha/catch-up", text, "catch_up", catch_up, _HA_GOAL, Topology.SLAVE)
    blocked = (BLOCKED_KILL, BLOCKED_JOIN)
    text = "Slave of a SYNC_MASTER killed and back, 50 sends/s"
    yield row("ha/slave-loss", text, "slave_loss", blocked, _BLOCKED_GOAL, Topology.SYNC)
    starts = (FIRST_SEND, READY)
    text = "Start, by what became of the store"
    yield row("start/empty", text, "start_empty", starts, _START_GOAL, block=_LIFE)
    yield _memory_row("fresh", _LIFE)
    for state in ("killed", "stopped"):
        yield row(f"start/{state}", text, "start_again", starts, {}, block=_LIFE)


def _timer_rows() -> Iterator[Row]:
    """Yield what Java's brokers keep since 5.0 only: messages for a later time."""
    for name, text, scenario, options in (
        (
            "java/timers/alone/128/64",
            "timer messages sent by 64 threads while a million wait",
            "pending",
            {"threads": 64, "timer_delay_s": WAITING_TIMER_S},
        ),
        (
            "java/timers/due/128",
            "timer messages that fall due together, at a push consumer, while a million wait",
            "due",
            {},
        ),
    ):
        yield Row(
            name=name,
            group=f"Java client, beside Java's broker 5.3: {text}",
            block="timers",
            scenario=scenario,
            topology=Topology.ALONE,
            metrics=SEND_METRICS if scenario == "pending" else (PER_S, CPU),
            goals={PER_S.key: Goal(1.0)},
            options={"bytes": 128, **options},
            java_release="5.3",
        )


def _memory_row(state: str, block: str) -> Row:
    return Row(
        name=f"memory/{state}",
        group="Memory of a master",
        block=block,
        scenario="memory",
        topology=Topology.ALONE,
        metrics=(RSS, RSS_PRIVATE, RSS_BEYOND_LOG),
        goals={RSS_BEYOND_LOG.key: Goal(0.06)},
    )
