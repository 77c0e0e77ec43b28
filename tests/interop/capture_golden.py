"""Record what real peers say to each other into `tests/wire/golden` and `tests/store/golden`.

    python tests/interop/capture_golden.py [wire] [stores]
    python tests/interop/capture_golden.py go        (one client's exchanges only)
    python tests/interop/capture_golden.py dledger   (only the store of a broker in DLEDGER mode)

Starts a Java name server, master and slave behind recording proxies, drives the C++, Node.js, Java
and Go clients and mqadmin through their lives, and keeps one exchange per client, command and kind
of outcome. What is in git was made by this program; run it again when a peer's version changes.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.histories.commitlog import wait_for_equal_logs
from support.peers.capture import Chunk, RecordingProxy, recording
from support.peers.clients import Clients, Kind, StockProducer
from support.peers.java import dledger_settings, java_broker, java_namesrv, mqadmin
from support.processes.admin import create_topic, wait_for_route
from support.processes.rig import REPO, Node, Processes, running_processes
from support.suite.ports import free_ports

from trioha.wire.codes import LanguageCode, RequestCode
from trioha.wire.remoting_command import RemotingCommand, decode_frame

GOLDEN = REPO / "tests" / "wire" / "golden"
STORE_GOLDEN = REPO / "tests" / "store" / "golden"
FRAME_BYTES_MAX = 24 * 1024
HA_BYTES_MAX = 16 * 1024
# Between masters and slaves.
SYNC_CODES = {21, 43, 45, 201}
QUICK_LEVELS = "1s 2s 2s 3s 4s 5s 6s 7s 8s 9s 10s 20s 30s 1m 2m 3m 1h 2h"


@attrs.define
class Exchange:
    request: bytes
    response: bytes | None = None


@attrs.define(eq=False)
class Golden:
    """The exchanges worth keeping, by file name below the golden directory."""

    kept: dict[str, Exchange] = attrs.Factory(dict)

    def add(self, client: str, exchange: Exchange) -> None:
        request = decode_frame(exchange.request)
        response = decode_frame(exchange.response) if exchange.response else None
        if request.language is LanguageCode.PYTHON:
            # Our own helpers use the same proxies.
            return
        if len(exchange.request) + len(exchange.response or b"") > FRAME_BYTES_MAX:
            return
        if request.code in SYNC_CODES:
            client = "java-slave"
        name = f"{client}/{command_name(request.code)}{variant(request, response)}"
        old = self.kept.get(name)
        if old is None or (len(old.response or b"") < 400 < len(exchange.response or b"")):
            self.kept[name] = exchange

    def write(self) -> None:
        for name, exchange in sorted(self.kept.items()):
            path = GOLDEN / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_name(path.name + ".request.bin").write_bytes(exchange.request)
            if exchange.response is not None:
                path.with_name(path.name + ".response.bin").write_bytes(exchange.response)


def command_name(code: int) -> str:
    try:
        return f"{code}-{RequestCode(code).name}"
    except ValueError:
        return str(code)


def variant(request: RemotingCommand, response: RemotingCommand | None) -> str:
    """Return what sets this exchange apart from others of its code."""
    parts = []
    fields = request.ext_fields
    properties = str(fields.get("i", fields.get("properties", "")))
    if request.code in (10, 310, 320):
        if "DELAY\x01" in properties:
            parts.append("delayed")
        if int(str(fields.get("f", fields.get("sysFlag", 0)))) & 1:
            parts.append("compressed")
        if str(fields.get("m", fields.get("batch", "false"))) in ("1", "true"):
            parts.append("batch")
    if request.is_oneway:
        parts.append("oneway")
    if response is not None and response.code:
        parts.append(str(response.code))
    return "".join(f"-{part}" for part in parts)


def exchanges(chunks: list[Chunk]) -> Iterator[Exchange]:
    """Pair requests with their responses: either side asks, opaques are counted separately."""
    waiting: dict[tuple[int, str, int], Exchange] = {}
    for chunk in chunks:
        command = decode_frame(chunk.data)
        if not command.is_response:
            exchange = Exchange(chunk.data)
            if command.is_oneway:
                yield exchange
            else:
                waiting[chunk.connection, chunk.way, command.opaque] = exchange
            continue
        asked = "down" if chunk.way == "up" else "up"
        key = (chunk.connection, asked, command.opaque)
        if key in waiting:
            yield Exchange(waiting.pop(key).request, chunk.data)
    # Unanswered: ali-ons asks for no answer without saying so.
    yield from waiting.values()


@attrs.define(eq=False)
class Stage:
    """A Java cluster with a proxy on each of its links."""

    processes: Processes
    clients: Clients
    namesrv: str
    master: Node
    slave: Node
    master_port: int
    proxies: dict[str, RecordingProxy]
    golden: Golden

    @contextlib.contextmanager
    def keep(self, client: str) -> Iterator[None]:
        """Keep what clients say within the block under the name `client`."""
        watched = [self.proxies[name] for name in ("client-namesrv", "broker", "vip")]
        marks = [len(proxy.chunks) for proxy in watched]
        yield
        for proxy, mark in zip(watched, marks, strict=True):
            opened = {chunk.connection for chunk in proxy.chunks[:mark]}
            fresh = [c for c in proxy.chunks if c.connection not in opened]
            for exchange in exchanges(fresh):
                self.golden.add(client, exchange)


@contextlib.contextmanager
def staged(root: Path, golden: Golden) -> Iterator[Stage]:
    with running_processes(root) as processes, contextlib.ExitStack() as stack:
        namesrv = java_namesrv(processes).start()
        host, port_text = namesrv.address.split(":")
        at = (host, int(port_text))
        port, public = free_ports(), free_ports()
        renamed = {
            f"127.0.0.1:{port + step}".encode(): f"127.0.0.1:{public + step}".encode()
            for step in (0, 1)
        }
        proxies = {
            "broker-namesrv": RecordingProxy(at, rewrite=renamed),
            "client-namesrv": RecordingProxy(at),
            "broker": RecordingProxy(("127.0.0.1", port), public),
            "vip": RecordingProxy(("127.0.0.1", port - 2), public - 2),
            "ha": RecordingProxy(("127.0.0.1", port + 1), public + 1, framed=False),
        }
        for proxy in proxies.values():
            stack.enter_context(recording(proxy))
        behind = proxies["broker-namesrv"].address
        settings = {"messageDelayLevel": QUICK_LEVELS, "registerNameServerPeriod": 10_000}
        master = java_broker(processes, behind, port=port, settings=settings).start()
        slave = java_broker(processes, behind, broker_id=1, role="SLAVE", settings=settings).start()
        yield Stage(
            processes,
            Clients(processes),
            proxies["client-namesrv"].address,
            master,
            slave,
            public,
            proxies,
            golden,
        )
        for node in (slave, master):
            node.stop()
        for exchange in exchanges(proxies["broker-namesrv"].chunks):
            golden.add("java-broker", exchange)


def client_life(stage: Stage, kind: Kind, name: str = "", **options: Any) -> None:
    """Do everything a client of this kind does from start to stop."""
    clients, namesrv, name = stage.clients, stage.namesrv, name or kind
    broker, topic, group = f"127.0.0.1:{stage.master_port}", f"{name}-topic", f"{name}-group"
    if kind == "js":
        create_topic(broker, namesrv, topic)
    producer = clients.producer(kind, namesrv, f"{name}-producers", **options)
    producer.send(topic, "hello", tags="TagA", keys="k1 k2", properties={"colour": "tief-grün"})
    producer.send(topic, "hello again", "ordered", shard=1)
    producer.send(topic, "later", delay_level=1)
    producer.send(topic, "compressible " * 500)
    if kind != "js":
        producer.send(topic, "no answer", "oneway")
        producer.send(topic, ["first", "second", "third"], "batch", tags="TagB")
    wait_for_route(namesrv, topic)
    failing = clients.consumer(kind, namesrv, group, topic, "TagA || TagB", fail_below=1, **options)
    failing.wait_for_count(1)
    plain = clients.consumer(kind, namesrv, f"{group}-all", topic, **options)
    # A Java broker keeps the C++ client's batch as one message.
    count = {"js": 4, "cpp": 6, "java": 8, "go": 8}[kind]
    plain.wait_for_count(count)
    ordered = clients.consumer(kind, namesrv, f"{group}-ordered", topic, orderly=True, **options)
    ordered.wait_for_count(count)
    second = clients.consumer(kind, namesrv, f"{group}-all", topic, **options)
    # Until the first commit of offsets, the retry and an answer to a parked pull.
    # The C++ client sends 36 to the address inside the message, past the proxy.
    wait_for_codes(stage, {15, 40} if kind == "cpp" else {15, 36, 40})
    time.sleep(12)
    producer.send(topic, "woken", tags="TagA")
    failing.wait_for_bodies(["woken"])
    for client in (failing, plain, ordered, second, producer):
        client.stop()


def wait_for_codes(stage: Stage, codes: set[int], within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    proxy, mark = stage.proxies["broker"], 0
    missing = set(codes)
    while missing and time.monotonic() < deadline:
        chunks = proxy.chunks[mark:]
        mark += len(chunks)
        missing -= {decode_frame(chunk.data).code for chunk in chunks}
        time.sleep(0.1)
    print(f"not seen: {sorted(missing)}")


def admin_life(stage: Stage) -> None:
    """Every mqadmin command that issue 2's broker and name server ought to answer."""
    topic, group = "java-topic", "java-group"
    broker = f"127.0.0.1:{stage.master_port}"
    consumer = stage.clients.consumer("java", stage.namesrv, group, topic, "TagA || TagB")
    producer = stage.clients.producer("java", stage.namesrv, "java-producers")
    producer.send(topic, "known", keys="known-key", tags="TagA")
    consumer.wait_for_bodies(["known"])
    (known,) = [message for message in consumer.messages if message.body == "known"]
    offset_id = (
        f"7F000001{int(stage.master.address.split(':')[1]):08X}{known.commit_log_offset:016X}"
    )
    commands = [
        "clusterList",
        "clusterList -m",
        "topicList",
        "topicList -c",
        "topicClusterList -t " + topic,
        f"topicRoute -t {topic}",
        f"topicStatus -t {topic}",
        f"updateTopic -b {broker} -t admin-topic -r 2 -w 2",
        "updateTopic -c DefaultCluster -t admin-topic -r 3 -w 3 -o true",
        f"updateTopicPerm -b {broker} -t admin-topic -p 4",
        f"updateSubGroup -b {broker} -g admin-group -r 2",
        f"consumerProgress -g {group}",
        "consumerProgress",
        f"consumerStatus -g {group}",
        f"consumerConnection -g {group}",
        f"producerConnection -g java-producers -t {topic}",
        f"brokerStatus -b {broker}",
        f"brokerConsumeStats -b {broker}",
        f"getBrokerConfig -b {broker}",
        f"updateBrokerConfig -b {broker} -k traceOn -v true",
        f"queryMsgById -i {offset_id}",
        f"queryMsgByKey -t {topic} -k known-key",
        f"queryMsgByUniqueKey -t {topic} -i {known.properties['UNIQ_KEY']}",
        f"queryMsgByOffset -t {topic} -b broker-a -i {known.queue_id} -o {known.queue_offset}",
        f"queryCq -t {topic} -q {known.queue_id} -i 0 -c 2 -b {broker}",
        f"printMsg -t {topic}",
        f"statsAll -t {topic}",
        f"resetOffsetByTime -g {group} -t {topic} -s now",
        f"resetOffsetByTime -g absent-group -t {topic} -s now",
        f"cloneGroupOffset -s {group} -d clone-group -t {topic}",
        "wipeWritePerm -b broker-a",
        "addWritePerm -b broker-a",
        "updateKvConfig -s NS -k key -v value",
        "deleteKvConfig -s NS -k key",
        "getNamesrvConfig",
        "deleteSubGroup -c DefaultCluster -g admin-group",
        "deleteTopic -c DefaultCluster -t admin-topic",
        f"cleanExpiredCQ -b {broker}",
        f"cleanUnusedTopic -b {broker}",
    ]
    home = stage.processes.root / "admin"
    for command in commands:
        arguments = [*command.split(), "-n", stage.namesrv]
        result = mqadmin(home, *arguments)
        words = (result.stdout.strip() or result.stderr.strip()).splitlines()
        print(f"{command}: {words[:1]}")
    for client in (producer, consumer):
        client.stop()


def capture_ha(stage: Stage) -> None:
    """Keep the first frames from the master, a heartbeat among them, and the slave's reports."""
    wait_for_equal_logs(stage.master.commitlog, stage.slave.commitlog, 30.0)
    time.sleep(6.0)
    chunks = [chunk for chunk in stage.proxies["ha"].chunks if chunk.connection == 0]
    down = b"".join(chunk.data for chunk in chunks if chunk.way == "down")
    up = b"".join(chunk.data for chunk in chunks if chunk.way == "up")
    home = GOLDEN / "ha"
    home.mkdir(parents=True, exist_ok=True)
    end = 0
    frames = []
    while end + 12 <= len(down):
        size = int.from_bytes(down[end + 8 : end + 12], "big")
        frames.append(down[end : end + 12 + size])
        end += 12 + size
    kept: list[bytes] = []
    for frame in frames:
        if sum(map(len, kept)) + len(frame) <= HA_BYTES_MAX:
            kept.append(frame)
        elif len(frame) != 12:
            break
    (home / "master-to-slave.bin").write_bytes(b"".join(kept))
    (home / "slave-to-master.bin").write_bytes(up[: 8 * 200])
    heartbeats = [frame for frame in frames if len(frame) == 12]
    (home / "heartbeat.bin").write_bytes(heartbeats[-1])


def capture_store(root: Path, name: str, crash: bool, **more: object) -> None:
    """A small store as a Java broker leaves it, with a list of what was put in."""
    settings: dict[str, object] = {
        "mappedFileSizeCommitLog": 16 * 1024,
        "mappedFileSizeConsumeQueue": 20 * 50,
        "maxHashSlotNum": 100,
        "maxIndexNum": 400,
        "messageDelayLevel": QUICK_LEVELS,
        **more,
    }
    with running_processes(root) as processes:
        namesrv = java_namesrv(processes).start()
        broker = java_broker(processes, namesrv.address, settings=settings).start()
        clients = Clients(processes)
        producers: dict[Kind, StockProducer] = {}
        create_topic(broker.address, namesrv.address, "golden", 2)
        for kind in ("java", "cpp", "js"):
            producers[kind] = clients.producer(kind, namesrv.address, f"{kind}-producers")
        for kind, producer in producers.items():
            for number in range(30):
                producer.send(
                    "golden",
                    f"{kind} {number} " + "x" * (number * 61 % 997),
                    tags=f"Tag{number % 3}",
                    keys=f"{kind}-{number} third-{number % 3}",
                )
        producers["java"].send("golden", [f"batch {number}" for number in range(5)], "batch")
        producers["java"].send("golden", "delayed", delay_level=1)
        producers["js"].send("golden", "z" * 30_000, keys="big")
        reader = clients.consumer("java", namesrv.address, "golden-readers", "golden")
        messages = reader.wait_for_count(97)
        for client in (reader, *producers.values()):
            client.stop()
        # Progress is written to disk every five or ten seconds, first after ten.
        time.sleep(12.0)
        if crash:
            broker.kill()
        else:
            broker.stop()
        store = broker.store
        assert store is not None
        listed = [
            {
                "queue_id": message.queue_id,
                "queue_offset": message.queue_offset,
                "phy_offset": message.commit_log_offset,
                "tags": message.tags,
                "keys": message.keys,
                "size": message.size,
                "sha256": message.sha256,
            }
            for message in sorted(messages, key=lambda m: m.commit_log_offset)
        ]
        STORE_GOLDEN.mkdir(parents=True, exist_ok=True)
        (STORE_GOLDEN / f"{name}.json").write_text(json.dumps(listed, indent=1) + "\n")
        with tarfile.open(STORE_GOLDEN / f"{name}.tar.xz", "w:xz") as archive:
            for path in sorted(store.rglob("*")):
                # DLedger's own index is 160 MiB, nearly all of it free.
                if path.is_file() and not path.match("dledger-*/index/*"):
                    add_file(archive, path, str(path.relative_to(store)))


def add_file(archive: tarfile.TarFile, path: Path, name: str) -> None:
    data = path.read_bytes()
    member = tarfile.TarInfo(name)
    member.size = len(data)
    # Index and consume queue lookups by time go by the file's age.
    member.mtime = int(path.stat().st_mtime)
    archive.addfile(member, io.BytesIO(data))


def capture_wire(root: Path, only: str | None = None) -> None:
    """Record every life, or only the one of this name; what was recorded before goes."""
    golden = Golden()
    with staged(root, golden) as stage:
        binary = {"system_properties": {"rocketmq.serialize.type": "ROCKETMQ"}}
        lives: list[tuple[str, Callable[[], None]]] = [
            ("cpp", lambda: client_life(stage, "cpp")),
            ("js", lambda: client_life(stage, "js")),
            ("java", lambda: client_life(stage, "java")),
            ("java-binary", lambda: client_life(stage, "java", "java-binary", **binary)),
            ("go", lambda: client_life(stage, "go")),
            ("mqadmin", lambda: admin_life(stage)),
        ]
        for name, live in lives:
            if only not in (None, name):
                continue
            began = time.monotonic()
            with stage.keep(name):
                live()
            print(f"{name}: {time.monotonic() - began:.1f} s")
        for path in (GOLDEN / (only or "")).rglob("*.bin"):
            path.unlink()
        if only is None:
            capture_ha(stage)
    if only is not None:
        golden.kept = {n: one for n, one in golden.kept.items() if n.startswith(f"{only}/")}
    golden.write()
    print(f"{len(golden.kept)} exchanges")


def main() -> None:
    parts = sys.argv[1:] or ["wire", "stores"]
    # A fixed place: paths are part of some answers.
    root = Path(tempfile.gettempdir()) / "golden"
    root.mkdir()
    try:
        if "wire" in parts:
            capture_wire(root / "wire")
        for name in set(parts) - {"wire", "stores", "dledger"}:
            capture_wire(root / name, name)
        if "stores" in parts:
            capture_store(root / "clean", "java-clean-stop", crash=False)
            capture_store(root / "crash", "java-killed", crash=True)
        if {"stores", "dledger"} & set(parts):
            raft = dledger_settings()
            capture_store(root / "dledger", "java-dledger", crash=False, **raft)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
