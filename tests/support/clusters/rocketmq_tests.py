"""RocketMQ's own integration tests, run against brokers of either make.

Maven Central has them compiled (`rocketmq-test:4.9.7:tests`), JUnit 4. Their BaseConf asks a class
IntegrationTestBase for a name server and two brokers; ours, in `tests/interop/java-its`, stands
before theirs on the class path and hands it a cluster that already runs. `RunClasses` prints a JSON
line a test, with the number of messages that the brokers hold of its topics: some of these tests
pass when every send is refused.
"""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import attrs

from support.clusters.pair import SMALL_FILES
from support.clusters.raft_group import raft_group
from support.peers.java import (
    COMPILE_S,
    INTEROP,
    class_path,
    java_broker,
    java_command,
    java_environment,
    java_namesrv,
    require_java,
)
from support.peers.toolchain import exclusively
from support.processes.rig import Node, Processes, start_all, trioha_broker, trioha_namesrv
from support.stores.certificates import certificates

RELEASE = "its"
Layout = Literal["java", "single", "pair", "three", "dledger"]
CLUSTER = "DefaultCluster"
BROKERS = ("broker-a", "broker-b")
"""The tests want two of every layout."""

SETTINGS: Mapping[str, object] = {
    **SMALL_FILES,
    "enablePropertyFilter": True,
    # TransactionalMsgIT waits two minutes, and RocketMQ checks every minute.
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 1000,
    # A busy two-core machine must not look like a broker out of capacity.
    "waitTimeMillsInSendQueue": 20_000,
}
_SLAVES: Mapping[Layout, int] = {"single": 0, "pair": 1, "three": 2}
_JAVA_NAMESRV_S = 60.0

CLASSES: tuple[str, ...] = (
    *(
        f"client.consumer.{name}IT"
        for name in (
            *("balance.NormalMsgDynamicBalance", "balance.NormalMsgStaticBalance"),
            "broadcast.normal.BroadCastNormalMsgNotRecv",
            "broadcast.normal.BroadCastNormalMsgRecvCrash",
            "broadcast.normal.BroadCastNormalMsgRecvFail",
            "broadcast.normal.BroadCastNormalMsgRecvStartLater",
            "broadcast.normal.BroadCastNormalMsgTwoDiffGroupRecv",
            "broadcast.normal.NormalMsgTwoSameGroupConsumer",
            "broadcast.order.OrderMsgBroadCast",
            "broadcast.tag.BroadCastTwoConsumerFilter",
            "broadcast.tag.BroadCastTwoConsumerSubDiffTag",
            "broadcast.tag.BroadCastTwoConsumerSubTag",
            *("cluster.DynamicAddAndCrash", "cluster.DynamicAddConsumer"),
            "cluster.DynamicCrashConsumer",
            "filter.SqlFilter",
            *("tag.MulTagSub", "tag.TagMessageWith1Consumer"),
            *("tag.TagMessageWithMulConsumer", "tag.TagMessageWithSameGroupConsumer"),
            *("topic.MulConsumerMulTopic", "topic.OneConsumerMulTopic"),
        )
    ),
    *(
        f"client.producer.{name}IT"
        for name in (
            *("async.AsyncSendException", "async.AsyncSendWithMessageQueue"),
            *("async.AsyncSendWithMessageQueueSelector", "async.AsyncSendWithOnlySendCallBack"),
            *("batch.BatchSend", "exception.msg.ChinaProp"),
            *("exception.msg.MessageException", "exception.msg.MessageUserProp"),
            "exception.producer.ProducerGroupAndInstanceNameValidity",
            *("oneway.OneWaySend", "oneway.OneWaySendException"),
            *("oneway.OneWaySendWithMQ", "oneway.OneWaySendWithSelector"),
            *("order.OrderMsgDynamicRebalance", "order.OrderMsg"),
            *("order.OrderMsgRebalance", "order.OrderMsgWithTag"),
            *("querymsg.QueryMsgByIdException", "querymsg.QueryMsgById"),
            *("querymsg.QueryMsgByKey", "transaction.TransactionalMsg"),
        )
    ),
    "delay.NormalMsgDelayIT",
    "smoke.NormalMessageSendAndRecvIT",
    *("tls.TLS_IT", "tls.TLS_Mix_IT", "tls.TLS_Mix2_IT"),
)
"""All but `DLedgerProduceAndConsumeIT`, which looks into a Java broker of its own process."""


@attrs.frozen
class TestResult:
    """One test. `stored`: messages in its topics at its end; `why`: of a failure, a line."""

    __test__ = False

    class_name: str
    method: str
    """Empty for what befell the whole class."""
    result: str
    """passed, failed, assumption or ignored."""
    seconds: float
    stored: int
    why: str = ""

    @property
    def name(self) -> str:
        return f"{self.class_name}.{self.method}" if self.method else self.class_name


@attrs.frozen
class TestCluster:
    """Two brokers of one layout under one name server."""

    __test__ = False

    layout: Layout
    namesrv: Node
    home: Path
    sets: Sequence[Sequence[Node]] = ()
    """Masters with their slaves."""


def start_layout(processes: Processes, layout: Layout) -> TestCluster:
    """Two of `layout` that serve: masters, sets or DLEDGER groups of ours, or Java's masters."""
    require_java(RELEASE)
    prefix = f"its-{layout}"
    if layout == "java":
        namesrv = java_namesrv(processes, name=prefix).start(_JAVA_NAMESRV_S)
        brokers = [
            java_broker(processes, namesrv.address, name=name, settings=SETTINGS, release=RELEASE)
            for name in BROKERS
        ]
        start_all(brokers, _JAVA_NAMESRV_S)
        return TestCluster(layout, namesrv, processes.root / "tests")
    tls = certificates().keys("permissive")
    namesrv = trioha_namesrv(processes, name=prefix, settings=tls).start()
    settings = {**SETTINGS, **tls}
    sets: list[list[Node]] = []
    if layout == "dledger":
        groups = [
            raft_group(processes, namesrv.address, name=name, settings=settings) for name in BROKERS
        ]
        start_all([node for group in groups for node in group.nodes])
        for group in groups:
            group.wait_for_leader()
            group.wait_for_followers()
    else:
        for name in BROKERS:
            sets.append(_set(processes, namesrv.address, name, _SLAVES[layout], settings))
            start_all(sets[-1])
    return TestCluster(layout, namesrv, processes.root / "tests", sets)


def _set(
    processes: Processes, namesrv: str, name: str, slaves: int, settings: Mapping[str, object]
) -> list[Node]:
    master = "SYNC_MASTER" if slaves else "ASYNC_MASTER"
    return [
        trioha_broker(
            processes,
            namesrv,
            name=name,
            broker_id=broker_id,
            role="SLAVE" if broker_id else master,
            settings=settings,
        )
        for broker_id in range(slaves + 1)
    ]


def run_classes(
    cluster: TestCluster, classes: Sequence[str], *, test_s: float, all_s: float
) -> list[TestResult]:
    """Run RocketMQ's test classes, named without `org.apache.rocketmq.test`, in a process.

    A test that takes longer than `test_s` fails and is the last; the process has `all_s`. Errors:
    AssertionError with the last lines when the process ends without a word.
    """
    home = cluster.home / classes[0]
    home.mkdir(parents=True, exist_ok=True)
    properties = {
        "its.namesrv": cluster.namesrv.address.rsplit(":", 1)[1],
        "its.cluster": CLUSTER,
        "its.brokers": ",".join(BROKERS),
    }
    command = java_command(
        "org.apache.rocketmq.test.base.RunClasses",
        home,
        [str(int(test_s)), *classes],
        properties=properties,
        classes=runner_classes(),
        release=RELEASE,
    )
    with (home / "err").open("w") as err:
        done = subprocess.run(
            command,
            env=java_environment(home),
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
            timeout=all_s,
            check=False,
        )
    said = "\n".join((home / "err").read_text(errors="replace").splitlines()[-30:])
    lines = done.stdout.splitlines()
    assert lines, f"{classes} said nothing, exit status {done.returncode}\n{said}"
    return [_result(json.loads(line)) for line in lines]


def _result(line: Mapping[str, object]) -> TestResult:
    return TestResult(
        str(line["class"]),
        str(line["method"]),
        str(line["result"]),
        float(str(line.get("seconds", 0))),
        int(str(line.get("stored", 0))),
        str(line.get("why", "")),
    )


@functools.cache
def runner_classes() -> str:
    """Directory of the classes of tests/interop/java-its."""
    sources = sorted((INTEROP / "java-its").rglob("*.java"))
    target = INTEROP / "target" / "classes-its"
    newest = max(source.stat().st_mtime for source in sources)
    stamp = target / "stamp"
    jars = class_path(RELEASE)
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
