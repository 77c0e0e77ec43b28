from __future__ import annotations

import attrs
import pytest

from trioha.errors import LocalProtocolError, StoreError
from trioha.ha.epochs import NONCE_BYTES, EpochHistory, EpochRecord
from trioha.ha.kept_mastership import KeptMastership
from trioha.ha.mastership import MEMBERS_MAX, Mastership, Standing

MASTER, SLAVE, FENCED = Standing.MASTER, Standing.SLAVE, Standing.FENCED


class Node:
    """A mastership whose disk survives its crashes."""

    def __init__(self, home_id: int = 0, *, master: bool = True, log_end: int = 0) -> None:
        self.home_id = home_id
        self.disk: bytes | None = None
        self.saves = 0
        self.starts = 0
        self.full = False
        self.start(master=master, log_end=log_end)

    def save(self, data: bytes) -> None:
        if self.full:
            raise StoreError("no space left")
        self.disk = data
        self.saves += 1

    def start(self, *, master: bool, log_end: int = 0) -> Mastership:
        self.starts += 1
        self.it = Mastership(self.home_id, self.save, self.disk)
        self.it.start(
            configured_master=master,
            log_end=log_end,
            nonce=bytes([self.home_id, self.starts, 0, 0, 0, 0, 0, 0]),
            sync=True,
            wall_ms=1000,
        )
        return self.it


def nonce(number: int) -> bytes:
    return number.to_bytes(8, "big")


def promoted(node: Node, epoch: int, log_end: int = 100) -> None:
    node.it.begin_term(epoch, log_end, nonce=nonce(epoch), sync=True, wall_ms=2000)


def successor_of(node: Node, epoch: int, log_end: int = 100) -> EpochHistory:
    """Return the history of a slave of this node after its promotion."""
    other = Node(1, master=False)
    other.it.adopt(node.it.history)
    promoted(other, epoch, log_end)
    return other.it.history


def test_a_master_begins_epoch_1_on_its_first_start_and_keeps_it() -> None:
    node = Node(log_end=500)
    newest = node.it.newest
    assert newest is not None
    assert (node.it.standing, newest.epoch, newest.start_offset) == (MASTER, 1, 500)
    node.start(master=True, log_end=900)
    assert (node.it.standing, node.it.newest) == (MASTER, newest)
    assert (node.it.broker_id, node.saves) == (0, 1)


def test_a_slave_begins_nothing_and_has_nothing_to_keep() -> None:
    node = Node(1, master=False)
    assert (node.it.standing, node.it.epoch, node.saves) == (SLAVE, 0, 0)


def test_a_slave_made_master_by_its_configuration_begins_a_term_of_its_own() -> None:
    old = Node()
    node = Node(1, master=False)
    node.it.adopt(old.it.history)
    node.home_id = 0
    node.start(master=True, log_end=700)
    assert (node.it.standing, node.it.epoch) == (MASTER, 2)
    assert [record.start_offset for record in node.it.history] == [0, 700]


def test_a_first_master_made_slave_by_its_configuration_is_one() -> None:
    node = Node()
    node.it.meet_members({1: "b:1"})
    node.start(master=False)
    assert (node.it.standing, node.it.unconfirmed) == (SLAVE, False)


def test_a_deposed_master_comes_back_as_a_slave_whatever_its_configuration_says() -> None:
    node = Node()
    node.it.adopt(successor_of(node, 2))
    node.start(master=True)
    assert (node.it.standing, node.it.broker_id) == (SLAVE, 1), "it takes its master's home id"


def test_a_promoted_node_comes_back_fenced_until_somebody_confirms() -> None:
    node = Node(1, master=False)
    node.it.adopt(Node().it.history)
    promoted(node, 2)
    assert (node.it.standing, node.it.broker_id) == (MASTER, 0)
    node.start(master=False)
    assert (node.it.standing, node.it.unconfirmed) == (FENCED, True)
    assert "no member has confirmed" in node.it.fenced_by
    assert node.it.confirm()
    assert (node.it.standing, node.it.epoch, node.it.fenced_by) == (MASTER, 2, "")
    assert not node.it.confirm(), "once"


def test_what_is_heard_before_the_confirmation_fences_for_good() -> None:
    node = Node()
    promoted(node, 3)
    node.start(master=True)
    assert node.it.hear(4, nonce(4), "10.0.0.2:10911")
    assert not node.it.confirm()
    node.start(master=True)
    assert (node.it.standing, node.it.unconfirmed) == (FENCED, False)
    assert node.it.fenced_by == "10.0.0.2:10911 holds epoch 4"


def test_a_newer_epoch_fences_a_master_at_once_and_through_a_crash() -> None:
    node = Node()
    assert node.it.hear(2, nonce(2), "10.0.0.2:10911")
    assert (node.it.standing, node.it.known_epoch, node.it.epoch) == (FENCED, 2, 1)
    assert not node.it.hear(2, nonce(2), "10.0.0.2:10911"), "already"
    node.start(master=True)
    assert node.it.standing is FENCED


def test_a_master_is_fenced_even_if_the_disk_does_not_take_it() -> None:
    node = Node()
    node.full = True
    with pytest.raises(StoreError, match="no space"):
        node.it.hear(2, nonce(2), "10.0.0.2:10911")
    assert node.it.standing is FENCED


def test_older_epochs_and_its_own_leave_a_master_alone() -> None:
    node = Node()
    promoted(node, 5)
    for epoch in (0, 1, 4):
        assert not node.it.hear(epoch, nonce(99), "somebody")
    assert not node.it.hear(5, nonce(5), "an echo", decided=True)
    assert node.it.standing is MASTER


def test_a_number_without_a_nonce_is_no_term() -> None:
    node = Node()
    assert not node.it.hear(2, b"", "a name server", decided=True)
    assert (node.it.standing, node.it.known_epoch) == (MASTER, 1)
    slave = Node(1, master=False)
    assert not slave.it.hear(1000, b"", "a name server", decided=True)
    assert slave.it.follows_term(1, nonce(1)), "its master, which could not be told of epoch 1000"


def test_a_number_without_a_nonce_that_an_earlier_version_kept_is_dropped() -> None:
    slave = Node(1, master=False)
    slave.it.adopt(Node().it.history)
    assert slave.disk is not None
    kept = KeptMastership.decode(slave.disk)
    slave.disk = attrs.evolve(kept, known_epoch=1000, known_nonce=b"").encode()
    slave.start(master=False)
    assert (slave.it.standing, slave.it.known_epoch) == (SLAVE, 1)


def test_for_an_equal_number_only_the_one_who_decides_is_believed() -> None:
    node = Node()
    promoted(node, 2)
    assert not node.it.hear(2, nonce(77), "a slave of another")
    assert node.it.hear(2, nonce(77), "10.0.0.2:10911, says name server n,", decided=True)
    node.start(master=True)
    assert (node.it.standing, node.it.unconfirmed) == (FENCED, False)


def test_a_term_must_be_newer_than_all_that_is_known() -> None:
    node = Node(1, master=False)
    node.it.hear(4, nonce(4), "somebody")
    with pytest.raises(LocalProtocolError, match="epoch 3 is not newer than 4"):
        promoted(node, 3)
    with pytest.raises(LocalProtocolError, match="epoch 4 is not newer than 4"):
        node.it.begin_term(4, 100, nonce=nonce(99), sync=False, wall_ms=0)
    promoted(node, 5)
    assert node.it.epoch == 5


def test_the_number_that_was_handed_over_may_be_begun_by_whoever_gets_it() -> None:
    old, target = Node(), Node(1, master=False)
    target.it.adopt(old.it.history)
    old.it.hand_over(2, nonce(2), "handed over to 1")
    assert (old.it.standing, old.it.promised) == (FENCED, (2, nonce(2)))
    target.it.promise(2, nonce(2))
    promoted(target, 2)
    assert target.it.standing is MASTER


def test_a_void_ticket_gives_mastership_back_and_a_real_successor_does_not() -> None:
    node = Node()
    node.it.hand_over(2, nonce(2), "handed over to 1")
    assert node.it.resume(nonce(2))
    assert (node.it.standing, node.it.known_epoch, node.it.fenced_by) == (MASTER, 1, "")
    node.it.hand_over(2, nonce(22), "handed over to 1")
    node.it.hear(2, nonce(22), "10.0.0.2:10911")
    assert not node.it.resume(nonce(22))
    assert node.it.standing is FENCED


def test_a_void_ticket_leaves_a_node_in_doubt_that_promised_another_term_meanwhile() -> None:
    node = Node()
    node.it.hand_over(2, nonce(2), "handed over to 1")
    node.it.promise(3, nonce(3))
    assert not node.it.resume(nonce(2))
    assert (node.it.standing, node.it.unconfirmed) == (FENCED, True)
    assert node.it.promised == (3, nonce(3))


def test_a_promise_outlives_a_restart_and_keeps_older_terms_away() -> None:
    node = Node(1, master=False)
    first = Node().it.history
    node.it.adopt(first)
    node.it.promise(4, nonce(4))
    node.it.promise(4, nonce(4))
    for epoch, other in ((4, 44), (3, 3)):
        with pytest.raises(LocalProtocolError, match="not newer than 4"):
            node.it.promise(epoch, nonce(other))
    node.start(master=False)
    assert node.it.promise_given == (4, nonce(4))
    with pytest.raises(LocalProtocolError, match="epoch 4 is known or promised"):
        node.it.adopt(first)
    for epoch, other, follows in ((3, 3, False), (4, 44, False), (4, 4, True), (5, 5, True)):
        assert node.it.follows_term(epoch, nonce(other)) is follows
    with pytest.raises(LocalProtocolError, match="not newer than 4"):
        node.it.begin_term(4, 100, nonce=nonce(44), sync=True, wall_ms=2000)
    promoted(node, 5)
    assert (node.it.promise_given, node.it.promised) == ((0, b""), (5, nonce(5)))


def test_a_master_promises_nothing_it_hands_over() -> None:
    node = Node()
    with pytest.raises(LocalProtocolError, match="master of epoch 1"):
        node.it.promise(2, nonce(2))
    with pytest.raises(LocalProtocolError, match="not newer"):
        node.it.hand_over(1, nonce(11), "handed over")
    assert node.it.standing is MASTER


def test_a_master_whose_slave_promised_another_term_is_in_doubt() -> None:
    node = Node()
    assert not node.it.is_deserted((1, node.it.nonce))
    assert not node.it.is_deserted((0, b""))
    assert node.it.is_deserted((1, nonce(11)))
    assert node.it.is_deserted((2, nonce(2)))
    assert node.it.doubt("1 has promised epoch 2")
    assert not node.it.doubt("1 has promised epoch 2")
    assert (node.it.standing, node.it.unconfirmed) == (FENCED, True)
    assert node.it.fenced_by == "1 has promised epoch 2"
    assert node.it.confirm()


def test_only_its_own_terms_count_as_begun_by_a_node() -> None:
    """PROMOTE answers SUCCESS where a term of the node's own has begun already."""
    master, slave = Node(), Node(1, master=False)
    slave.it.adopt(master.it.history)
    assert master.it.has_begun(master.it.nonce)
    assert not slave.it.has_begun(master.it.nonce)


def test_a_term_that_another_node_began_under_the_same_nonce_is_not_its_own() -> None:
    """A forger of an operator's ticket may give it to two nodes."""
    node, other = Node(), Node(1, master=False)
    promoted(node, 2)
    other.it.adopt(node.it.history)
    other.it.begin_term(3, 100, nonce=nonce(2), sync=True, wall_ms=2000)
    node.it.adopt(other.it.history)
    assert not node.it.is_own
    node.start(master=True, log_end=100)
    assert stands(node) == (SLAVE, False, False)


def test_what_an_operator_found_adds_members_and_changes_none() -> None:
    node = Node()
    node.it.meet_members({1: "b:1"})
    node.it.learn_members({1: "elsewhere:1", 2: "c:1", 3: "b:1"})
    assert node.it.members == {1: "b:1", 2: "c:1"}


def test_a_term_needs_the_promises_of_all_members_but_one() -> None:
    node = Node()
    assert node.it.lacks_promises([]) == ""
    node.it.meet_members({1: "b:1"})
    assert node.it.lacks_promises([]) == "", "a pair's node begins a term alone"
    node.it.meet_members({2: "c:1"})
    assert "1 (b:1) and 2 (c:1) have not promised" in node.it.lacks_promises([])
    assert node.it.lacks_promises([2]) == ""
    node.it.meet_members({3: "d:1"})
    assert "1 (b:1) and 3 (d:1)" in node.it.lacks_promises([2])
    assert node.it.lacks_promises([2, 3]) == ""


def test_a_hand_over_is_remembered_by_a_master_that_was_never_failed_over() -> None:
    node = Node()
    node.it.hand_over(2, nonce(2), "handed over to 1")
    node.start(master=True)
    assert (node.it.standing, node.it.fenced_by) == (FENCED, "handed over to 1")


def test_a_slave_refuses_a_history_older_than_what_it_knows() -> None:
    node = Node(1, master=False)
    node.it.hear(3, nonce(3), "somebody")
    with pytest.raises(LocalProtocolError, match="while epoch 3 is known"):
        node.it.adopt(Node().it.history)


def test_adopting_the_same_history_again_costs_no_write() -> None:
    node = Node(1, master=False)
    history = Node().it.history
    node.it.adopt(history)
    node.it.adopt(history)
    assert node.saves == 1


def test_members_are_remembered_and_bounded() -> None:
    node = Node()
    node.it.meet_members({1: "10.0.0.2:10911", 0: "ourselves"})
    node.start(master=True)
    assert dict(node.it.members) == {1: "10.0.0.2:10911"}
    node.it.meet_members({home: "x:1" for home in range(2, MEMBERS_MAX + 5)})
    assert len(node.it.members) == MEMBERS_MAX
    assert node.it.members[1] == "10.0.0.2:10911"
    # Known members, and members of the history, are not kept out by others.
    assert node.it.meet_members({1: "10.0.0.9:10911", 500: "x:1"})
    assert node.it.members[1] == "10.0.0.9:10911"
    assert 500 not in node.it.members
    node.it.adopt(EpochHistory((EpochRecord(1, 0, 600, b"n" * NONCE_BYTES, False),)))
    assert node.it.meet_members({600: "d:1"})
    assert len(node.it.members) == MEMBERS_MAX
    assert node.it.members[600] == "d:1"


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x81\xa7version\x02", b"\xc1", b"nonsense"])
def test_bytes_that_are_no_mastership_are_refused_with_a_cure(data: bytes) -> None:
    with pytest.raises(StoreError, match=r"epochs file cannot be understood .* move the whole"):
        Mastership(0, lambda _: None, data)


class Machine(Node):
    """A node on a machine that can lose power."""

    boot = b"first boot"

    def start(self, *, master: bool, log_end: int = 0, clean: bool = False) -> Mastership:
        self.it = Mastership(self.home_id, self.save, self.disk, boot=self.boot)
        self.it.start(
            configured_master=master,
            log_end=log_end,
            nonce=bytes([self.home_id, 9, 0, 0, 0, 0, 0, 0]),
            sync=True,
            wall_ms=1000,
            clean=clean,
        )
        return self.it


def test_a_killed_master_asks_whether_it_still_is_one_and_has_lost_nothing() -> None:
    """The first failover, too, may have been while it was away."""
    node = Machine()
    node.it.meet_members({1: "b:1"})
    node.start(master=True)
    assert stands(node) == (FENCED, True, False)


def stands(node: Node) -> tuple[Standing, bool, bool]:
    return node.it.standing, node.it.unconfirmed, node.it.may_have_lost


def test_a_master_whose_machine_went_down_asks_its_members_first() -> None:
    """The unflushed tail may be acknowledged: other bytes must not take that place."""
    node = Machine()
    node.it.meet_members({1: "b:1"})
    node.boot = b"second boot"
    for _ in range(2):
        node.start(master=True)
        assert stands(node) == (FENCED, True, True)
    node.it.confirm()
    node.start(master=True)
    assert stands(node) == (FENCED, True, False), "of this boot nothing is lost"


def test_a_lone_master_has_nobody_to_ask() -> None:
    node = Machine()
    node.boot = b"second boot"
    node.start(master=True)
    assert (node.it.standing, node.it.may_have_lost) == (MASTER, False)


def test_an_orderly_stop_loses_nothing_in_whatever_boot() -> None:
    node = Machine()
    node.it.meet_members({1: "b:1"})
    node.boot = b"second boot"
    node.start(master=True, clean=True)
    assert not stands(node)[2]
    node.start(master=True)
    assert not stands(node)[2], "the new boot is on disk"


def test_where_the_boot_cannot_be_told_every_unclean_stop_is_a_power_loss() -> None:
    node = Machine()
    node.it.meet_members({1: "b:1"})
    node.boot = b""
    node.start(master=True)
    assert stands(node) == (FENCED, True, True)


def test_a_slave_that_lost_power_is_in_doubt_until_it_was_level_again() -> None:
    node = Machine(1, master=False)
    node.it.adopt(Node().it.history)
    node.start(master=False)
    assert not stands(node)[2]
    node.boot = b"second boot"
    node.start(master=False)
    node.it.adopt(node.it.history)
    assert stands(node)[2]
    node.start(master=False)
    assert stands(node)[2], "a second crash makes nothing better"
    node.it.note_whole()
    node.start(master=False)
    assert not stands(node)[2]


def test_an_orderly_stop_behind_a_loss_of_power_ends_no_doubt() -> None:
    node = Machine(1, master=False)
    node.it.adopt(Node().it.history)
    node.boot = b"second boot"
    node.start(master=False)
    assert node.it.may_have_lost
    node.start(master=False, clean=True)
    assert node.it.may_have_lost
    node.it.note_whole()
    node.start(master=False, clean=True)
    assert not node.it.may_have_lost


def test_an_epoch_that_was_only_promised_is_told_to_nobody() -> None:
    node = Node()
    assert node.it.begun == (1, node.it.nonce)
    node.it.hand_over(2, nonce(2), "handed over to 1")
    assert node.it.promised == (2, nonce(2))
    assert node.it.begun == (1, node.it.nonce), "it may turn out to be void"
    assert node.it.resume(nonce(2))
    node.it.hear(3, nonce(3), "somebody")
    assert node.it.begun == (3, nonce(3))
