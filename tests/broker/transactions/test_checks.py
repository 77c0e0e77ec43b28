from __future__ import annotations

import attrs
import pytest
from support.handlers.sending import WALL_MS, ProduceSide, at
from support.handlers.transactions import (
    COMMIT,
    end,
    half,
    prepare,
    producer,
    run_checks,
    stored,
    take_over,
)

from trioha.broker.transactions import checks
from trioha.config import BrokerConfig
from trioha.store.interface import PutResult, PutStatus
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.names import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_GROUP,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from trioha.wire.properties import decode_properties
from trioha.wire.remoting_command import RemotingCommand

FIRST_MS, INTERVAL_MS = 6_000, 60_000
QUICK = attrs.evolve(
    BrokerConfig(),
    transaction_time_out=1_000,
    transaction_check_interval=2_000,
    transaction_check_max=3,
)


def quick(config: BrokerConfig = QUICK) -> ProduceSide:
    side = ProduceSide(config)
    side.checks.next_deadline(WALL_MS)  # the time of grace begins
    return side


def asked_for(request: RemotingCommand) -> PutResult:
    """Return the offsets of the copy that a producer is asked about."""
    fields = request.ext_fields
    return PutResult(
        PutStatus.PUT_OK,
        int(str(fields["commitLogOffset"])),
        0,
        int(str(fields["tranStateTableOffset"])),
    )


def test_nothing_is_due_without_transactions() -> None:
    assert quick().checks.next_deadline(WALL_MS) is None


def test_a_producer_is_asked_once_the_time_out_is_over() -> None:
    side = quick()
    channel = producer(side)
    prepare(side)
    # A new master gives producers time to connect.
    assert side.checks.next_deadline(WALL_MS) == WALL_MS + 2_000
    run_checks(side, 1_999)
    assert channel.sent == []
    run_checks(side, 2_000)
    (request,) = channel.sent
    assert request.code == RequestCode.CHECK_TRANSACTION_STATE
    assert request.is_oneway
    assert end(side, asked_for(request), fromTransactionCheck="true").code == 0
    (message,) = stored(side, "T")
    assert decode_properties(message.properties)["TRANSACTION_CHECK_TIMES"] == "1"


def test_each_check_leaves_one_copy_that_counts() -> None:
    side = quick()
    prepare(side)
    run_checks(side, 2_000)
    run_checks(side, 4_000)
    assert len(stored(side, TRANS_HALF_TOPIC)) == 3
    ops = stored(side, TRANS_OP_HALF_TOPIC)
    assert [bytes(message.body) for message in ops] == [b"0", b"1"]
    take_over(side)
    (copy,) = side.transactions.pending
    assert (copy.origin, copy.queue_offset, copy.check_times) == (0, 2, 2)


def test_the_offsets_of_the_half_message_end_its_copy_too() -> None:
    """Fault A15: Java's broker commits the half message and goes on to ask for the copy."""
    side = quick()
    where = prepare(side)
    run_checks(side, 2_000)
    assert end(side, where).code == 0
    take_over(side)
    assert len(side.transactions.pending) == 0
    assert len(stored(side, "T")) == 1


def test_producers_of_a_group_are_asked_in_turn() -> None:
    side = quick()
    channels = [producer(side), producer(side)]
    stranger = producer(side, "other")
    for number in range(4):
        prepare(side, half(f"K{number}"))
    run_checks(side, 2_000)
    assert [len(channel.sent) for channel in channels] == [2, 2]
    assert stranger.sent == []
    channels[0].closed = True
    run_checks(side, 4_000)
    assert [len(channel.sent) for channel in channels] == [2, 6]


def test_each_check_of_a_transaction_goes_to_another_producer() -> None:
    """Two transactions of two groups: their checks take turns, and so would a common counter."""
    side = quick()
    ours = [producer(side), producer(side)]
    others = [producer(side, "other"), producer(side, "other")]
    prepare(side)
    prepare(side, half("K2", group="other"))
    run_checks(side, 2_000)
    run_checks(side, 4_000)
    assert [len(channel.sent) for channel in ours + others] == [1, 1, 1, 1]


def test_a_message_without_an_answer_is_discarded_after_the_limit() -> None:
    side = quick()
    channel = producer(side)
    where = prepare(side)
    for round_number in range(1, 5):
        run_checks(side, 2_000 * round_number)
    assert len(channel.sent) == 3
    (message,) = stored(side, TRANS_CHECK_MAX_TIME_TOPIC)
    assert decode_properties(message.properties)["REAL_TOPIC"] == "T"
    assert len(side.transactions.pending) == 0
    assert side.events.of("transaction_discarded")
    # A late commit does not bring it back.
    assert end(side, where).code == ResponseCode.SYSTEM_ERROR
    assert stored(side, "T") == []


def test_checks_count_though_no_producer_is_connected() -> None:
    side = quick()
    prepare(side)
    run_checks(side, 2_000)
    assert (side.checks.checked_count, side.checks.unasked_count) == (1, 1)


def test_what_readers_may_not_see_yet_is_not_checked() -> None:
    side = quick()
    channel = producer(side)
    where = prepare(side)
    side.store.readable_offset = where.phy_offset
    run_checks(side, 2_000)
    assert channel.sent == []
    # A producer that knows of it may end it all the same: what comes of it lies behind it.
    assert side.checks.next_deadline(WALL_MS + 2_000) == WALL_MS + 3_000
    side.store.readable_offset = 1 << 62
    run_checks(side, 3_000)
    assert len(channel.sent) == 1


def test_a_full_store_makes_checks_wait() -> None:
    side = quick()
    channel = producer(side)
    prepare(side)
    side.store.writable = False
    run_checks(side, 2_000)
    assert side.checks.next_deadline(WALL_MS + 2_000) == WALL_MS + 12_000
    side.store.writable = True
    run_checks(side, 12_000)
    assert len(channel.sent) == 1


def test_a_long_queue_behind_the_oldest_transaction_moves_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checks, "SPAN_MAX", 10)
    side = quick(BrokerConfig())
    oldest = prepare(side, half("old", more={"CHECK_IMMUNITY_TIME_IN_SECONDS": "3600"}))
    for number in range(12):
        end(side, prepare(side, half(f"K{number}")))
    run_checks(side, 10)
    (copy,) = side.transactions.pending
    assert (copy.origin, copy.queue_offset, copy.check_times) == (0, 13, 0)
    assert copy.due_ms == WALL_MS + 3_600_000
    take_over(side)
    assert [one.origin for one in side.transactions.pending] == [0]
    assert end(side, oldest).code == 0


def test_many_open_transactions_are_not_copied_round_and_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checks, "SPAN_MAX", 10)
    side = quick(BrokerConfig())
    for number in range(12):
        prepare(side, half(f"K{number}", more={"CHECK_IMMUNITY_TIME_IN_SECONDS": "3600"}))
    run_checks(side, 10)
    assert len(stored(side, TRANS_HALF_TOPIC)) == 12
    assert side.checks.next_deadline(WALL_MS + 10) == WALL_MS + 3_600_000


def drive_progress(side: ProduceSide, now_ms: int) -> None:
    side.store.flush()
    run_checks(side, now_ms)


def test_progress_is_committed_once_all_that_it_rests_on_is_safe() -> None:
    side = quick()
    for number in range(3):
        end(side, prepare(side, half(f"K{number}")))
    query = side.offsets.query
    run_checks(side, 5_000)
    # Nothing is on disk.
    run_checks(side, 10_000)
    assert query(TRANS_GROUP, TRANS_HALF_TOPIC, 0) == -1
    drive_progress(side, 15_000)
    assert query(TRANS_GROUP, TRANS_HALF_TOPIC, 0) == 3
    assert query(TRANS_GROUP, TRANS_OP_HALF_TOPIC, 0) == 3
    drive_progress(side, 20_000)
    assert side.checks.next_deadline(WALL_MS + 20_000) is None
    take_over(side)
    assert len(side.transactions.pending) == 0


def test_progress_stops_at_the_oldest_open_transaction() -> None:
    side = quick(BrokerConfig())
    places = [
        prepare(side, half(f"K{number}", more={"CHECK_IMMUNITY_TIME_IN_SECONDS": "99"}))
        for number in range(4)
    ]
    end(side, places[0])
    end(side, places[2])
    for now_ms in (5_000, 10_000, 15_000):
        drive_progress(side, now_ms)
    assert side.offsets.query(TRANS_GROUP, TRANS_HALF_TOPIC, 0) == 1
    # The op message of the third is needed as long as the third is read anew.
    assert side.offsets.query(TRANS_GROUP, TRANS_OP_HALF_TOPIC, 0) == 1
    take_over(side)
    assert [copy.origin for copy in side.transactions.pending] == [1, 3]


def test_an_old_half_message_is_asked_about_once_before_it_is_discarded() -> None:
    side = quick(attrs.evolve(QUICK, file_reserved_time=0))
    channel = producer(side)
    prepare(side)
    run_checks(side, 2_000)
    assert len(channel.sent) == 1
    run_checks(side, 4_000)
    assert len(stored(side, TRANS_CHECK_MAX_TIME_TOPIC)) == 1
    assert len(channel.sent) == 1


def test_a_pass_keeps_to_its_budget() -> None:
    side = quick()
    channel = producer(side)
    for number in range(5):
        prepare(side, half(f"K{number}"))
    run_checks(side, 2_000, budget=2)
    assert len(channel.sent) == 2
    assert side.checks.next_deadline(WALL_MS + 2_000) == WALL_MS + 2_000
    assert end(side, asked_for(channel.sent[1]), COMMIT, now_ms=2_000).code == 0
    run_checks(side, 2_000, budget=9)
    assert len(channel.sent) == 5
    assert at().wall_ms == WALL_MS
