"""A node has one id in all tables, sentences and commands, whichever node is master."""

from __future__ import annotations

import pytest
import trio
from trioha_console.cells import text_of
from trioha_console.frame import Frame
from trioha_console.views import brokers as brokers_view
from trioha_console.views import replication_table

from trioha.cli import check, ha, ha_terms
from trioha.client.driving import drive
from trioha.failover.gathering import gather_facts
from trioha.jobs.brokers import describe_broker, get_settings, list_brokers, plan_setting
from trioha.jobs.drain import DrainOrder, plan_drain
from trioha.jobs.overview import look
from trioha.jobs.telling import JobScope
from trioha.testing import open_cluster
from trioha.testing.virtual_time import run_on_virtual_time
from trioha.watch.collector import Interest
from trioha.watch.condition import condition_of
from trioha.watch.history import History
from trioha.watch.marks import MarkFinder
from trioha.watch.rule import Area

pytestmark = pytest.mark.trio(run=run_on_virtual_time)


async def test_after_a_failover_every_place_calls_a_node_by_its_own_id() -> None:
    async with open_cluster("2m-2s-sync") as cluster:
        await cluster.wait_in_sync()
        ids = {cluster.broker("broker-a", number).address: str(number) for number in (0, 1)}
        await cluster.fail_over("broker-a", to=1)
        await cluster.wait_in_sync()
        scope = JobScope((cluster.namesrv,), 1.0)

        listed = (await drive(list_brokers(scope), cluster.operator)).brokers
        listed = [one for one in listed if one.name == "broker-a"]
        assert {one.address: str(one.id) for one in listed} == ids
        assert {one.address: one.role for one in listed} == {
            cluster.broker("broker-a", 1).address: "SYNC_MASTER",
            cluster.broker("broker-a", 0).address: "SLAVE",
        }
        for address, number in ids.items():
            found = await drive(describe_broker(scope, "broker-a", int(number)), cluster.operator)
            assert (found.id, found.address) == (int(number), address)
            settings = await drive(get_settings(scope, "broker-a", int(number)), cluster.operator)
            assert settings.address == address
            order = DrainOrder(
                ticket_id="0123456789abcdef",
                operator="anna@ops-1",
                wait_s=1.0,
                now_ms=lambda: int(trio.current_time() * 1000),
                wall_ms=lambda: int(trio.current_time() * 1000),
            )
            plan = await drive(plan_drain(scope, "broker-a", int(number), order), cluster.operator)
            assert (plan.id, plan.address) == (int(number), address)
            assert plan.way == ("failover" if number == "1" else "nothing")
        setting = plan_setting(scope, "broker-a", None, "fileReservedTime", "48")
        changed = (await drive(setting, cluster.operator)).brokers
        assert changed == {f"broker-a/{number}": address for address, number in ids.items()}
        facts = await drive(
            gather_facts("broker-a", scope.namesrvs, patience_s=1.0), cluster.operator
        )
        assert {one.address: str(one.home_id) for one in facts.replicas} == ids

        looking = look(scope, Interest(), cluster.operator.clock.instant)
        snapshot = await drive(looking, cluster.operator)
        history = History()
        history.add(snapshot)
        marks = MarkFinder()
        marks.look(snapshot)
        one = snapshot.sets[0]
        assert [replica.is_master for replica in one.replicas] == [True, False]
        statuses = [ha._status_of(replica) for replica in one.replicas]
        assert {status["address"]: str(status["id"]) for status in statuses} == ids
        nodes = ha_terms.terms_in_words(statuses)[0].splitlines()[1:]
        assert [line.split()[1] for line in nodes] == ["1", "0"]
        for replica in one.replicas:
            number = ids[replica.address]
            assert replica.own_id == number
            assert replica.full_name == f"broker-a {number} at {replica.address}"
            line = replication_table.ReplicationLine(
                one, replica, condition_of(replica), history.of(replica.address), 0
            )
            assert text_of(replication_table._name(line, 30)).split()[1] == number
        moment = Frame(snapshot, history, live=True)
        for row in brokers_view.lines_of(moment):
            if row.replica.name != "broker-a":
                continue
            (column,) = [one for one in brokers_view.SHAPE.columns if one.title == "ID"]
            assert text_of(column.cell(row, 3)) == ids[row.replica.address]

        # The old master dies; it is the slave that is registered with another id.
        await cluster.broker("broker-a", 0).kill()
        looking = look(scope, Interest(), cluster.operator.clock.instant)
        later = await drive(looking, cluster.operator)
        (dead,) = [one for one in later.replicas if one.answer.error]
        assert dead.own_id == "0"
        assert all(
            one.startswith("broker-a 0 at ") for one in check._unknowns(later, Area.HA, None)
        )
        assert {one.subject for one in marks.look(later) if one.kind == "node"} <= {dead.full_name}
