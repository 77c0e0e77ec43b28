"""Whole members of a DLEDGER group: real stores, real sockets on loopback, quick timers."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import msgpack
import pytest
import trio
from services.node.test_metrics import get, labels, scrape
from support.nodes.live_group import LiveGroup, live_group
from support.nodes.live_node import NAME, SUCCESS, send_request
from support.suite.ports import free_ports

from trioha.client import open_admin
from trioha.config import BrokerConfig
from trioha.errors import StoreError, Unreachable
from trioha.services.broker import serve_broker
from trioha.services.loop.clock import Clock
from trioha.services.remoting.client import open_remoting_client, parse_address
from trioha.store.message_store import FileMessageStore
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.names import OUTCOME_UNKNOWN
from trioha.wire.remoting_command import ExtValue, RemotingCommand


def max_offset(topic: str = "T", queue_id: int = 0) -> RemotingCommand:
    return RemotingCommand(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": queue_id})


def holds(status: dict[str, Any], end: int) -> bool:
    """Return whether it knows the log committed up to `end`, and has all of that in its queues."""
    known: int = min(status["raft"]["committed_offset"], status["dispatched_offset"])
    return known >= end


async def broker_addresses(group: LiveGroup) -> dict[int, str]:
    """Return the group's addresses that the name server tells clients: brokerId → address."""
    async with open_admin(group.namesrv) as admin:
        data = (await admin.cluster_info()).broker_addr_table.get(NAME)
        return dict(data.broker_addrs) if data is not None else {}


async def test_three_members_elect_one_that_takes_messages(tmp_path: Path) -> None:
    async with live_group(tmp_path) as group:
        await group.start()
        leader = await group.leader()
        answer = await leader.send()
        assert (answer.code, answer.ext_int("queueOffset")) == (SUCCESS, 0)
        end = (await leader.status())["max_phy_offset"]
        for member in group.members:
            status = await member.wait(lambda it: holds(it, end))
            assert status["raft"]["leader_id"] == leader.id
            assert (await member.ask(max_offset())).ext_int("offset") == 1


async def test_name_servers_list_the_leader_as_0_and_followers_as_slaves(tmp_path: Path) -> None:
    async with live_group(tmp_path) as group:
        await group.start()
        leader = await group.leader()
        wanted = {0: leader.address} | {
            int(member.id[1:]) + 1: member.address for member in group.besides(leader)
        }
        while await broker_addresses(group) != wanted:  # noqa: ASYNC110
            await trio.sleep(0.01)


async def test_a_follower_passes_on_what_is_sent_to_it(tmp_path: Path) -> None:
    async with live_group(tmp_path) as group:
        await group.start()
        leader = await group.leader()
        follower = group.besides(leader)[0]
        await follower.wait(lambda it: it["follows"] == leader.address)
        assert (await follower.send()).code == SUCCESS
        assert (await leader.status())["put_total"] >= 1


async def test_a_leader_that_breaks_off_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    async with live_group(tmp_path) as group:
        await group.start()
        first = await group.leader()
        for number in range(5):
            answer = await first.send(b"%d" % number)
            assert (answer.code, answer.ext_int("queueOffset")) == (SUCCESS, number)
        term = (await first.status())["raft"]["term"]
        await first.break_off()
        second = await group.leader(*group.besides(first))
        assert (await second.status())["raft"]["term"] > term
        assert (await second.ask(max_offset())).ext_int("offset") == 5
        answer = await second.send(b"5")
        assert (answer.code, answer.ext_int("queueOffset")) == (SUCCESS, 5)
        await first.start()
        end = (await second.status())["max_phy_offset"]
        await first.wait(lambda it: holds(it, end) and it["standing"] == "SLAVE")
        assert (await first.ask(max_offset())).ext_int("offset") == 6


async def test_a_machine_that_stands_still_deposes_no_leader(tmp_path: Path) -> None:
    """It stands still once: with heartbeats of 60 ms a busy one did so a second time at once."""
    slow = {
        "d_leger_heartbeat_interval": 300,
        "d_leger_election_timeout_min": 1_000,
        "d_leger_election_timeout_max": 1_600,
    }
    async with live_group(tmp_path, **slow) as group:
        await group.start()
        leader = await group.leader()
        longest_ms = leader.config.d_leger_election_timeout_max
        time.sleep(1.3 * longest_ms / 1000)  # noqa: ASYNC251 - the standstill itself
        assert (await leader.send()).code == SUCCESS
        roles = [row["role"] for row in leader.events.of("raft_role")]
        assert roles.count("LEADER") == 1, roles
        assert roles[-1] == "LEADER"


async def test_a_leader_that_is_stopped_hands_over_first(tmp_path: Path) -> None:
    async with live_group(tmp_path, d_leger_election_timeout_max=3_000) as group:
        await group.start()
        first = await group.leader()
        assert (await first.send()).code == SUCCESS
        await first.stop()
        second = await group.leader(*group.besides(first))
        rows = second.events.of("raft_role")
        stood = [str(row["reason"]) for row in rows if row["role"] == "CANDIDATE"]
        assert stood, rows
        assert "hands over" in stood[-1], rows
        answer = await second.send()
        assert (answer.code, answer.ext_int("queueOffset")) == (SUCCESS, 1)


async def test_offsets_and_topics_survive_the_leader(tmp_path: Path) -> None:
    progress: dict[str, ExtValue] = {"consumerGroup": "g", "topic": "T", "queueId": 0}
    async with live_group(tmp_path) as group:
        await group.start()
        first = await group.leader()
        await first.send()
        commit = RemotingCommand(
            RequestCode.UPDATE_CONSUMER_OFFSET, {**progress, "commitOffset": 1}
        )
        assert (await first.ask(commit)).code == SUCCESS
        await first.break_off()
        second = await group.leader(*group.besides(first))
        query = RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, progress)
        answer = await second.ask(query)
        assert (answer.code, answer.ext_int("offset")) == (SUCCESS, 1)


async def test_without_a_majority_nothing_is_acknowledged(tmp_path: Path) -> None:
    async with live_group(tmp_path, slave_timeout=300) as group:
        await group.start()
        leader = await group.leader()
        for member in group.besides(leader):
            await member.break_off()
        answer = await leader.send()
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert str(answer.remark).startswith(OUTCOME_UNKNOWN)
        status = await leader.wait(lambda it: it["standing"] == "SLAVE")
        assert status["raft"]["role"] != "LEADER"


async def test_a_group_of_one_serves_and_comes_back(tmp_path: Path) -> None:
    async with live_group(tmp_path, 1) as group:
        await group.start()
        only = await group.leader()
        assert (await only.send()).code == SUCCESS
        await only.stop()
        await only.start()
        again = await group.leader()
        answer = await again.send()
        assert (answer.code, answer.ext_int("queueOffset")) == (SUCCESS, 1)


async def test_what_is_sent_while_nobody_leads_waits_for_the_next_leader(tmp_path: Path) -> None:
    async with live_group(tmp_path) as group:
        await group.start()
        leader = await group.leader()
        others = group.besides(leader)
        for member in others:
            await member.break_off()
        await leader.wait(lambda it: it["standing"] == "SLAVE")
        answers: list[int] = []

        async def send() -> None:
            answers.append((await leader.send()).code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await others[0].start()
        assert answers == [SUCCESS]


async def test_a_planned_transfer_refuses_nobody(tmp_path: Path) -> None:
    async with live_group(tmp_path) as group:
        await group.start()
        first = await group.leader()
        answers: list[tuple[int, int]] = []
        done = trio.Event()

        async def keep_sending() -> None:
            async with open_remoting_client(*parse_address(first.address), Clock()) as client:
                while not done.is_set():
                    answer = await client.request(send_request())
                    answers.append((answer.code, answer.ext_int("queueOffset", -1)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_sending)
            target = group.besides(first)[0]
            body = msgpack.packb({"do": "transfer", "member": target.id})
            request = RemotingCommand(RequestCode.TRIOHA_RAFT_ADMIN, body=body)
            answer = await first.ask(request)
            assert answer.code == SUCCESS, answer.remark
            assert await group.leader(*group.besides(first)) is target
            sent = len(answers)
            while len(answers) < sent + 10:  # noqa: ASYNC110
                await trio.sleep(0.01)  # it is a real network
            done.set()
        assert {code for code, _ in answers} == {SUCCESS}
        assert [offset for _, offset in answers] == list(range(len(answers)))


async def test_a_delayed_message_is_delivered_by_the_next_leader(tmp_path: Path) -> None:
    async with live_group(tmp_path, message_delay_level="1s") as group:
        await group.start()
        first = await group.leader()
        request = send_request()
        request.ext_fields["i"] = "DELAY\x011"
        assert (await first.ask(request)).code == SUCCESS
        await first.break_off()
        second = await group.leader(*group.besides(first))
        while not (await second.ask(max_offset())).ext_int("offset"):  # noqa: ASYNC110
            await trio.sleep(0.01)  # it is a real network
        assert (await second.ask(max_offset())).ext_int("offset") == 1


async def test_a_leader_whose_fsync_fails_ends_and_another_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush = FileMessageStore.flush
    broken: set[Path] = set()

    def flush_or_fail(store: FileMessageStore) -> int:
        if store.config.root in broken:
            raise StoreError("cannot fsync: Input/output error")
        return flush(store)

    monkeypatch.setattr(FileMessageStore, "flush", flush_or_fail)
    async with live_group(tmp_path) as group:
        await group.start()
        first = await group.leader()
        assert (await first.send()).code == SUCCESS
        broken.add(Path(first.config.store_path_root_dir))
        is_safe = False
        with suppress(Unreachable):
            # The two others may have it on disk before the leader's fsync has failed.
            is_safe = (await first.send()).code == SUCCESS
        await first.ended.wait()
        assert "cannot fsync: Input/output error" in first.error
        second = await group.leader(*group.besides(first))
        answer = await second.send()
        assert answer.code == SUCCESS
        # A message that was not acknowledged may be there; an acknowledged one is.
        assert answer.ext_int("queueOffset") in ((2,) if is_safe else (1, 2))


async def test_no_node_opens_the_store_of_the_other_mode(tmp_path: Path) -> None:
    async with live_group(tmp_path, 1) as group:
        await group.start()
        only = await group.leader()
        await only.stop()
        plain = attrs.evolve(only.config, enable_d_leger_commit_log=False, ha_listen_port=0)
        assert "enableDLegerCommitLog=true" in await refusal(plain)
        store = str(tmp_path / "plain")
        plain = attrs.evolve(plain, store_path_root_dir=store)
        async with trio.open_nursery() as nursery:
            shutdown = trio.Event()
            await nursery.start(serve_broker, plain, shutdown, RecordedEvents())
            shutdown.set()
        member = attrs.evolve(only.config, store_path_root_dir=store)
        assert "trioha raft convert" in await refusal(member)


async def refusal(config: BrokerConfig) -> str:
    """Return why a node with this configuration does not start."""
    with pytest.RaisesGroup(StoreError, flatten_subgroups=True, allow_unwrapped=True) as caught:
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_broker, config, trio.Event(), RecordedEvents())
    error: BaseException = caught.value
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)


async def test_a_member_tells_prometheus_and_kubernetes_what_it_is(tmp_path: Path) -> None:
    port = free_ports()
    async with live_group(tmp_path, 1, admin_http_enable=True, admin_http_port=port) as group:
        await group.start()
        only = await group.leader()
        await only.send()
        series = await scrape(f"127.0.0.1:{port}")
        assert series["trioha_raft_role"][labels(role="leader")] == 1
        assert series["trioha_raft_serving"][labels()] == 1
        assert series["trioha_raft_term"][labels()] == 1
        end = (await only.status())["max_phy_offset"]
        for name in ("committed", "held", "end"):
            assert series[f"trioha_raft_{name}_offset_bytes"][labels()] == end
        assert series["trioha_raft_elections_total"][labels()] == 1
        assert series["trioha_raft_commit_wait_seconds_count"][labels()] == 1
        status, text = await get(f"127.0.0.1:{port}", "/readyz")
        assert (status, text.splitlines()) == (
            200,
            ["[+] serving", "[+] namesrv", "[+] member", "[+] writable", "ready"],
        )


async def test_a_member_that_waits_for_the_others_is_not_ready_and_says_why(tmp_path: Path) -> None:
    port = free_ports()
    async with live_group(tmp_path, 3, admin_http_enable=True, admin_http_port=port) as group:
        await group[0].start()
        status, text = await get(f"127.0.0.1:{port}", "/readyz")
        assert status == 503
        assert "[-] member: waits for n1, n2" in text
        assert "[-] following: its group has no leader" in text
        series = await scrape(f"127.0.0.1:{port}")
        assert series["trioha_raft_role"][labels(role="follower")] == 1
        assert "trioha_raft_committed_offset_bytes" not in series
