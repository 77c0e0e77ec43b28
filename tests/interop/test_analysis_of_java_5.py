"""A store that Java's 5.3 broker left, analysed: pops kept in either way, and transactions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from support.clusters.pair import SMALL_FILES
from support.peers.clients import Clients
from support.peers.java import java_broker
from support.processes.admin import create_topic, max_offset
from support.processes.analyze import Answers, analyze
from support.processes.popping import LONG_MS, PopClient
from support.processes.rig import Node, running_processes, trioha_namesrv
from support.processes.status import run_trioha, wait_until
from support.suite.skips import importable, skip_unless

from trioha.wire.codes import ResponseCode

pytestmark = pytest.mark.xdist_group("java 5 store")

TOPIC, GROUP, RETRY = "T", "g", "%RETRY%g_T"
INVISIBLE_MS = 3_000
COME_S = 60.0
SETTINGS: Mapping[str, object] = {
    **SMALL_FILES,
    "transactionTimeOut": 2_000,
    "transactionCheckInterval": 3_000,
    "transactionCheckMax": 5,
    # Else the broker asks for what has ended, while the end waits three seconds to be stored.
    "transactionOpBatchInterval": 100,
}
KEPT: Mapping[str, Mapping[str, object]] = {
    "revive log": {},
    "RocksDB": {"popConsumerKVServiceInit": True, "popConsumerKVServiceEnable": True},
}
OUTCOMES = {
    "committed": ("commit", "unknown"),
    "rolled back": ("rollback", "unknown"),
    "committed when asked": ("unknown", "commit"),
    "rolled back when asked": ("unknown", "rollback"),
    "never known": ("unknown", "unknown"),
}


@pytest.fixture(scope="module", params=list(KEPT))
def kept(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def store(kept: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_processes(tmp_path_factory.mktemp("java-5")) as processes:
        namesrv = trioha_namesrv(processes).start()
        settings = {**SETTINGS, **KEPT[kept]}
        broker = java_broker(processes, namesrv.address, settings=settings, release="5.3").start()
        create_topic(broker.address, namesrv.address, "X", queues=1)
        pop_all_ways(PopClient(broker.address, TOPIC, GROUP))
        end_all_ways(Clients(processes), namesrv.address, broker)
        assert broker.store is not None
        yield broker.store


def pop_all_ways(client: PopClient) -> None:
    def send(key: str) -> None:
        client.send(key, UNIQ_KEY=key, KEYS=key)

    client.create()
    for key in ("acknowledged", "left", "hidden"):
        send(key)
    acknowledged, left, hidden = client.pop("all", invisibleTime=INVISIBLE_MS)
    assert [acknowledged.body, left.body, hidden.body] == ["acknowledged", "left", "hidden"]
    client.ack("acknowledged", acknowledged)
    client.hide("hidden", hidden, LONG_MS)
    (again,) = client.pop_again("left again", left)
    assert again.body == "left"
    client.ack("left", again)
    assert client.told["acknowledged"] == client.told["left"] == ResponseCode.SUCCESS
    send("in-flight")
    assert [message.body for message in client.pop("in flight")] == ["in-flight"]
    send("not-popped")


def end_all_ways(clients: Clients, namesrv: str, broker: Node) -> None:
    producer = clients.transactional_producer("java", namesrv, "producers")
    for body, (local, checked) in OUTCOMES.items():
        sent = producer.send("X", body, local=local, checked=checked, keys=body.replace(" ", "-"))
        assert sent.status == "SEND_OK"
    wait_until(
        "one given up", lambda: max_offset(broker.address, "TRANS_CHECK_MAX_TIME_TOPIC", 0), COME_S
    )
    producer.send("X", "open", local="unknown", checked="unknown", keys="open")
    assert broker.stop() in (0, 143)
    producer.stop()


def explained(store: Path, key: str) -> dict[str, str]:
    """Verdicts by code; the text of a code that comes twice is joined."""
    done = run_trioha("analyze", "explain", str(store), "--key", key, "-o", "json")
    assert done.code == 0, done.err
    found: dict[str, str] = {}
    for verdict in json.loads(done.out)["verdicts"]:
        code = verdict["code"]
        found[code] = f"{found[code]} {verdict['text']}" if code in found else verdict["text"]
    return found


def test_pops_are_explained(kept: str, store: Path) -> None:
    answers = {
        key: explained(store, key)
        for key in ("acknowledged", "left", "hidden", "in-flight", "not-popped")
    }
    if kept == "RocksDB":
        assert all("popped" not in answer for answer in answers.values())
        assert list(answers["left"]) == ["stored", "retried"]
        assert "Group g did not acknowledge it in time" in answers["left"]["retried"]
        assert list(answers["not-popped"]) == ["stored", "not consumed"]
        return
    assert {key: list(answer) for key, answer in answers.items()} == {
        "acknowledged": ["stored", "popped"],
        "left": ["stored", "popped", "retried"],
        "hidden": ["stored", "popped"],
        "in-flight": ["stored", "popped"],
        "not-popped": ["stored", "not consumed"],
    }
    assert "popped it 1 time" in answers["acknowledged"]["popped"]
    assert "and acknowledged it" in answers["acknowledged"]["popped"]
    left = answers["left"]
    assert "popped it 1 time" in left["popped"]
    assert "and did not acknowledge it." in left["popped"]
    assert (
        f"Group g did not acknowledge it in time: it came again 1 time through {RETRY}"
        in (left["retried"])
    )
    assert "popped its redelivery 1 time" in left["popped"]
    assert "and acknowledged it" in left["popped"].partition("its redelivery")[2]
    assert "popped it 1 time" in answers["hidden"]["popped"]
    assert "changed its invisible time 1 time" in answers["hidden"]["popped"]
    for key in ("hidden", "in-flight"):
        assert "had not acknowledged it when the log ends" in answers[key]["popped"]


def test_transactions_are_explained(store: Path) -> None:
    wanted = {
        "committed": ["stored", "committed"],
        "rolled-back": ["stored", "rolled back"],
        "committed-when-asked": ["stored", "committed"],
        "rolled-back-when-asked": ["stored", "rolled back"],
        "never-known": ["stored", "given up"],
        "open": ["stored", "half message"],
    }
    ignored = {"stored late", "no offset"}
    found = {key: explained(store, key) for key in wanted}
    assert {
        key: [code for code in answer if code not in ignored] for key, answer in found.items()
    } == wanted
    assert "asked the producer 0 times" in found["committed"]["committed"]
    assert "asked the producer 5 times" in found["never-known"]["given up"]


@pytest.fixture(scope="module", params=["local", pytest.param("spark", marks=pytest.mark.release)])
def answers(
    store: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Answers:
    engine = ["--engine", request.param]
    if request.param == "spark":
        skip_unless(importable("pyspark"), "needs the extra spark")
        engine += ["--master", "local[2]"]
    return analyze(tmp_path_factory.mktemp("answers") / "out", [str(store), *engine])


def test_the_report_counts_transactions_and_redeliveries(answers: Answers) -> None:
    row = answers.row("queues", "transactions")
    assert row["transactions"] == len(OUTCOMES) + 1
    assert (row["committed"], row["rolled_back"], row["given_up"], row["waiting"]) == (2, 2, 1, 1)
    row = answers.row("queues", "redelivery")
    assert (row["consumer_group"], row["kind"], row["messages"]) == (GROUP, "retry", 1)


def test_what_a_broker_stores_again_is_not_slow(answers: Answers) -> None:
    row = answers.row("latency", "stores")
    # Three messages that were popped, two more, and six half messages.
    assert row["messages"] == 5 + len(OUTCOMES) + 1
    assert row["max_ms"] < INVISIBLE_MS


def test_the_store_is_sound(answers: Answers) -> None:
    assert answers.code == 0
    assert answers.findings("integrity", "error") == []
