"""Epoch histories that real clusters have stumbled over, each as a script."""

from __future__ import annotations

import pytest
from sim.scripts import Set

from trioha.ha.epochs import EpochHistory, EpochRecord, Meeting
from trioha.ha.mastership import Standing
from trioha.sim.pair.checker import Broken


def nonce(number: int) -> bytes:
    return number.to_bytes(8, "big")


def test_three_elections_without_a_write_and_then_one_write_a_side_converge() -> None:
    """Fault A9: an epoch that began where the last one did was dropped."""
    pair = Set(2)
    pair.put("a")
    pair.wait()
    pair.promote("b", 2, nonce(2))
    pair.wait()
    pair.promote("a", 3, nonce(3))
    pair.wait()
    pair.promote("b", 4, nonce(4))
    pair.wait()
    assert [record.epoch for record in pair.node("a").roles.mastership.history] == [1, 2, 3, 4]
    pair.cut_off("b")
    pair.put("b", 1)
    pair.promote("a", 5, nonce(5))
    pair.put("a", 1)
    pair.wait()
    pair.world.network.heal()
    pair.wait()
    pair.check_converged()
    assert pair.world.checker.counts.cuts == 1


def both_write_in_terms_of_one_number() -> Set:
    """Two operators with --force, on either side of a cut."""
    trio_of_nodes = Set(3)
    trio_of_nodes.put("a")
    trio_of_nodes.wait()
    trio_of_nodes.kill("a")
    trio_of_nodes.cut_off("c")
    trio_of_nodes.promote("b", 2, nonce(2))
    trio_of_nodes.promote("c", 2, nonce(22))
    trio_of_nodes.put("b", 8)
    trio_of_nodes.put("c", 3)
    trio_of_nodes.wait()
    trio_of_nodes.world.network.heal()
    trio_of_nodes.start("a")
    trio_of_nodes.wait(6000)
    return trio_of_nodes


def test_both_sides_wrote_after_a_forced_switch_and_one_of_them_cuts_back() -> None:
    trio_of_nodes = both_write_in_terms_of_one_number()
    trio_of_nodes.check_converged()
    assert trio_of_nodes.node("b").roles.mastership.standing is Standing.MASTER
    assert trio_of_nodes.world.checker.counts.cuts == 1


def test_a_meeting_that_ignores_the_nonce_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The detector of the test above is proven."""
    real = EpochHistory.meet

    def nameless(history: EpochHistory) -> EpochHistory:
        return EpochHistory(
            tuple(EpochRecord(one.epoch, one.start_offset, 0, bytes(8), True) for one in history)
        )

    def meet(self: EpochHistory, our_end: int, theirs: EpochHistory, their_end: int) -> Meeting:
        return real(nameless(self), our_end, nameless(theirs), their_end)

    monkeypatch.setattr(EpochHistory, "meet", meet)
    with pytest.raises(Broken, match="logs differ"):
        both_write_in_terms_of_one_number().check_converged()


def test_a_node_that_was_away_for_several_epochs_comes_back_to_the_same_log() -> None:
    trio_of_nodes = Set(3)
    trio_of_nodes.put("a")
    trio_of_nodes.wait()
    trio_of_nodes.cut_off("a")
    trio_of_nodes.put("a", 4)
    trio_of_nodes.wait()
    for epoch, host in enumerate(("b", "c", "b", "c"), 2):
        trio_of_nodes.promote(host, epoch, nonce(epoch))
        trio_of_nodes.wait(1500)
        trio_of_nodes.put(host, epoch)
        trio_of_nodes.wait()
    trio_of_nodes.world.network.heal()
    trio_of_nodes.wait(6000)
    trio_of_nodes.check_converged()
    assert trio_of_nodes.node("a").roles.mastership.standing is Standing.SLAVE
    assert trio_of_nodes.world.checker.counts.cuts == 1


def test_a_master_that_is_cut_off_acknowledges_nothing() -> None:
    """Fault A8: no lease is needed, since no ack of its epoch comes any more."""
    pair = Set(2)
    pair.put("a")
    pair.wait()
    before = pair.world.checker.counts.acknowledged
    pair.cut_off("a")
    pair.put("a", 20)
    pair.promote("b", 2, nonce(2))
    pair.wait()
    pair.put("a", 20)
    pair.wait()
    assert pair.world.checker.counts.acknowledged == before
    pair.world.network.heal()
    pair.wait()
    pair.check_converged()


def test_a_returning_master_does_not_take_the_name_server_with_it() -> None:
    """Fault D4: two brokers under id 0."""
    pair = Set(2)
    pair.put("a")
    pair.wait()
    pair.kill("a")
    pair.promote("b", 2, nonce(2))
    pair.wait(100)
    routes = [pair.world.namesrv.route().master]
    pair.start("a")
    for _ in range(60):
        pair.wait(50)
        routes.append(pair.world.namesrv.route().master)
    assert set(routes[1:]) == {"b"}, routes
    pair.check_converged()
