"""The reference peers as processes: Apache RocketMQ's broker, name server and mqadmin.

`tests/interop/pom.xml` lists the jars, Maven resolves them once into `tests/interop/target`. Each
Java process gets a small heap, a home of its own below the test's directory, and loopback
addresses. Two habits of RocketMQ 4.9 shape the layout: the HA port is always the client port + 1,
whatever the file says, and the fast port is the client port - 2.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.peers.toolchain import exclusively
from support.processes.rig import REPO, Node, Process, Processes
from support.suite.ports import free_ports
from support.suite.skips import unavailable

INTEROP = REPO / "tests" / "interop"
# Which pom of tests/interop a release comes from.
POMS: Mapping[str, str] = {
    "4": "pom.xml",
    "5": "pom-5.xml",
    "5.3": "pom-5.3.xml",
    "grpc": "pom-grpc.xml",
    "spring": "pom-spring.xml",
    "proxy": "pom-proxy.xml",
    "its": "pom-its.xml",
}
RESOLVE_S = 600.0
COMPILE_S = 120.0
MQADMIN_S = 60.0
# A broker starts in 2 to 4 s on a quiet machine, and took 13 s beside three other tests.
READY_S = 120.0

# RocketMQ reaches into these to unmap files and free direct buffers.
_OPENS = (
    *("--add-opens", "java.base/java.nio=ALL-UNNAMED"),
    *("--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED"),
    *("--add-exports", "java.base/jdk.internal.ref=ALL-UNNAMED"),
)
# Quick to start and small, since tests run several of these on two cores.
SMALL_HEAP = ("-Xms96m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

_LOGBACK = """<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{HH:mm:ss.SSS} %-5level %logger{0} - %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""

# Small files, so that a dozen stores fit a test run; index files of 400 MB otherwise.
SMALL_STORE: Mapping[str, object] = {
    "mappedFileSizeCommitLog": 64 * 1024 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 3000,
    "maxHashSlotNum": 5000,
    "maxIndexNum": 20000,
    "diskMaxUsedSpaceRatio": 95,
    # A busy two-core machine must not look like a broker out of capacity.
    "waitTimeMillsInSendQueue": 20000,
}


def require_java(release: str = "4") -> None:
    """Skip the test, saying why, when the Java peers cannot be had; in CI fail instead."""
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            unavailable(f"Java peers: {tool} is not installed")
    try:
        class_path(release)
    except (subprocess.SubprocessError, OSError) as error:
        unavailable(f"Java peers: Maven could not resolve the RocketMQ jars: {error}")


@functools.cache
def class_path(release: str = "4") -> str:
    """The jars of the reference peers, resolved by Maven when the pom is newer than the result."""
    pom = INTEROP / POMS[release]
    kept = INTEROP / "target" / pom.stem.replace("pom", "classpath")
    with exclusively(kept.parent):
        if kept.exists() and kept.stat().st_mtime >= pom.stat().st_mtime:
            text = kept.read_text()
            if all(Path(jar).exists() for jar in text.split(":")):
                return text
        subprocess.run(
            [
                *("mvn", "-q", "-B", "-f", str(pom), "dependency:build-classpath"),
                f"-Dmdep.outputFile={kept}",
            ],
            check=True,
            capture_output=True,
            timeout=RESOLVE_S,
        )
        os.utime(kept)
        return kept.read_text()


@functools.cache
def compiled_classes() -> str:
    """Directory of the classes of tests/interop/java, compiled against the reference jars."""
    sources = sorted((INTEROP / "java").glob("*.java"))
    target = INTEROP / "target" / "classes"
    newest = max(source.stat().st_mtime for source in sources)
    stamp = target / "stamp"
    jars = class_path()
    with exclusively(target):
        if not stamp.exists() or stamp.stat().st_mtime < newest:
            subprocess.run(
                ["javac", "-nowarn", "-cp", jars, "-d", str(target), *map(str, sources)],
                check=True,
                capture_output=True,
                timeout=COMPILE_S,
            )
            stamp.touch()
    return str(target)


def java_command(
    main: str,
    home: Path,
    arguments: Sequence[str],
    *,
    heap: Sequence[str] = SMALL_HEAP,
    properties: Mapping[str, str] | None = None,
    classes: str = "",
    release: str = "4",
) -> list[str]:
    """A command line with all of a process's droppings below `home`."""
    conf = home / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    for part in ("broker", "namesrv", "tools"):
        (conf / f"logback_{part}.xml").write_text(_LOGBACK)
    options = {
        "user.home": str(home),
        "java.io.tmpdir": str(home),
        "rocketmq.home.dir": str(home),
        "rocketmq.client.logRoot": str(home / "logs"),
        "rocketmq.client.logLevel": "WARN",
        **(properties or {}),
    }
    return [
        *("java", *heap, *_OPENS),
        *(f"-D{key}={value}" for key, value in options.items()),
        *("-cp", f"{classes}:{class_path(release)}" if classes else class_path(release)),
        *(main, *arguments),
    ]


def java_environment(home: Path) -> dict[str, str]:
    """The environment without what the caller's shell says about RocketMQ or the JVM."""
    foreign = ("NAMESRV_ADDR", "ROCKETMQ_", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    return kept | {"ROCKETMQ_HOME": str(home), "HOME": str(home)}


def write_properties(path: Path, values: Mapping[str, object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (
        f"{key}={str(value).lower() if isinstance(value, bool) else value}"
        for key, value in values.items()
    )
    path.write_text("\n".join(lines) + "\n")
    return path


def java_namesrv(
    processes: Processes, port: int | None = None, name: str = "namesrv", release: str = "4"
) -> Node:
    """A Java name server on loopback, not yet started."""
    require_java(release)
    port = port or free_ports()
    home = processes.root / f"java-{name}"
    config = {"listenPort": port, "kvConfigPath": home / "kvConfig.json", "rocketmqHome": home}
    file = write_properties(home / "namesrv.conf", config)
    main = "org.apache.rocketmq.namesrv.NamesrvStartup"
    command = java_command(main, home, ["-c", str(file)], release=release)
    process = _java_process(processes, f"java-{name}", command, home)
    return Node(process, f"127.0.0.1:{port}", r"The Name Server boot success", ready_s=READY_S)


def java_broker(
    processes: Processes,
    namesrv: str,
    *,
    name: str = "broker-a",
    broker_id: int = 0,
    role: str = "ASYNC_MASTER",
    port: int | None = None,
    store: Path | None = None,
    settings: Mapping[str, object] | None = None,
    release: str = "4",
    heap: Sequence[str] = SMALL_HEAP,
    sizes: Mapping[str, object] = SMALL_STORE,
    properties: Mapping[str, str] | None = None,
) -> Node:
    """A Java broker on loopback, not yet started. It keeps its ports over a restart.

    `properties`: its Java system properties.
    """
    require_java(release)
    port = port or free_ports()
    label = f"java-{name}-{broker_id}"
    home = processes.root / label
    store = store or home / "store"
    config: dict[str, object] = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": name,
        "brokerId": broker_id,
        "brokerRole": role,
        "namesrvAddr": namesrv,
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "listenPort": port,
        "storePathRootDir": store,
        "storePathCommitLog": store / "commitlog",
        "rocketmqHome": home,
        **sizes,
        **(settings or {}),
    }
    file = write_properties(home / "broker.conf", config)
    main = "org.apache.rocketmq.broker.BrokerStartup"
    command = java_command(
        main, home, ["-c", str(file)], heap=heap, release=release, properties=properties
    )
    process = _java_process(processes, label, command, home)
    ready = rf"The broker\[{re.escape(name)}, \S+\] boot success"
    ha_address = f"127.0.0.1:{port + 1}"
    return Node(process, f"127.0.0.1:{port}", ready, store, ha_address, ready_s=READY_S)


def dledger_settings(name: str = "broker-a") -> dict[str, object]:
    """Return settings for DLEDGER mode, as a Raft group of one."""
    return {
        "enableDLegerCommitLog": True,
        "dLegerGroup": name,
        "dLegerPeers": f"n0-127.0.0.1:{free_ports()}",
        "dLegerSelfId": "n0",
    }


def mqadmin(
    home: Path, *arguments: str, within_s: float = MQADMIN_S
) -> subprocess.CompletedProcess[str]:
    """Run `mqadmin <arguments>` to its end, both outputs captured."""
    require_java()
    home.mkdir(parents=True, exist_ok=True)
    return subprocess.run(
        java_command("org.apache.rocketmq.tools.command.MQAdminStartup", home, arguments),
        env=java_environment(home),
        # consumerStatus leaves a directory where it runs.
        cwd=home,
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )


def _java_process(processes: Processes, name: str, command: list[str], home: Path) -> Process:
    log = processes.root / "logs" / f"{name}.log"
    environment = java_environment(home)
    return processes.add(Process(name, command, log, environment, home, is_java=True))
