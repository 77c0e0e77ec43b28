from __future__ import annotations

from functools import partial
from random import Random

from trioha.sim.network import End, Item, Network
from trioha.sim.scheduler import Scheduler

FOREVER_MS = 100_000


class Host:
    """Accepts everything and remembers what it hears."""

    def __init__(self, network: Network, name: str) -> None:
        self.heard: list[Item] = []
        self.closed = 0
        self.ends: list[End] = []
        network.listen(name, "port", self.take)

    def take(self, end: End) -> None:
        self.ends.append(end)
        end.on_item = self.heard.append
        end.on_close = self.hear_close

    def hear_close(self) -> None:
        self.closed += 1


def make(seed: int = 1) -> tuple[Scheduler, Network, Host]:
    scheduler = Scheduler()
    network = Network(scheduler, Random(seed))
    return scheduler, network, Host(network, "b")


def test_items_arrive_once_and_in_order() -> None:
    for seed in range(20):
        scheduler, network, host = make(seed)
        end = network.connect("a", "b", "port")
        for number in range(200):
            end.send(number)
        scheduler.run_until(FOREVER_MS)
        assert host.heard == list(range(200))


def test_both_directions_are_independent() -> None:
    scheduler, network, host = make()
    ours: list[Item] = []
    end = network.connect("a", "b", "port")
    end.on_item = ours.append
    end.send("ping")
    scheduler.run_until(1000)
    network.cut("b", "a")
    host.ends[0].send("pong")
    end.send("again")
    scheduler.run_until(2000)
    assert (host.heard, ours) == (["ping", "again"], [])


def test_what_waited_behind_a_cut_arrives_when_it_is_healed() -> None:
    scheduler, network, host = make()
    network.cut("a", "b")
    end = network.connect("a", "b", "port")
    end.send("late")
    scheduler.run_until(5000)
    assert not host.heard
    network.heal()
    scheduler.run_until(6000)
    assert host.heard == ["late"]


def test_closing_is_heard_after_what_was_sent() -> None:
    scheduler, network, host = make()
    end = network.connect("a", "b", "port")
    end.send("last words")
    end.close()
    end.send("nothing")
    scheduler.run_until(FOREVER_MS)
    assert host.heard == ["last words"]
    assert host.closed == 1


def test_a_reset_loses_what_is_under_way_and_tells_both_ends() -> None:
    scheduler, network, host = make()
    end = network.connect("a", "b", "port")
    told: list[str] = []
    end.on_close = lambda: told.append("closed")
    scheduler.run_until(1000)
    end.send("lost")
    assert network.reset_one() in ("a-b", "b-a")
    scheduler.run_until(FOREVER_MS)
    assert (host.heard, host.closed, told) == ([], 1, ["closed"])


def test_nobody_who_listens_means_a_closed_connection() -> None:
    scheduler, network, _ = make()
    told: list[str] = []
    end = network.connect("a", "nowhere", "port")
    end.on_close = lambda: told.append("closed")
    scheduler.run_until(FOREVER_MS)
    assert told == ["closed"]


def test_a_dead_process_is_noticed_and_a_dead_machine_is_not_until_it_is_talked_to() -> None:
    for silent in (False, True):
        scheduler, network, host = make()
        told: list[str] = []
        end = network.connect("a", "b", "port")
        end.on_close = partial(told.append, "closed")
        scheduler.run_until(1000)
        assert host.ends
        if silent:
            network.machine_died("b")
        else:
            network.process_died("b")
        scheduler.run_until(5000)
        assert told == ([] if silent else ["closed"])
        end.send("anybody there?")
        scheduler.run_until(6000)
        assert told == ["closed"]


def test_a_seed_is_a_run() -> None:
    def run() -> list[tuple[int, Item]]:
        scheduler, network, _ = make(7)
        heard: list[tuple[int, Item]] = []

        def hear(item: Item) -> None:
            heard.append((scheduler.now_ms, item))

        def take(end: End) -> None:
            end.on_item = hear

        network.listen("c", "port", take)
        for number in range(50):
            network.connect("a", "c", "port").send(number)
        scheduler.run_until(FOREVER_MS)
        return heard

    assert run() == run()
