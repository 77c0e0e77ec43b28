from __future__ import annotations

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.handlers.sending import STORE_HOST, WALL_MS, ProduceSide, at, send_v2
from support.stores.records import encode_record

from trioha.broker.delay import DelayLevels, delivered_message
from trioha.config import BrokerConfig, BrokerRole
from trioha.errors import ConfigError, RemoteProtocolError
from trioha.remoting.channel import Instant
from trioha.wire.java_hash import string_hash
from trioha.wire.names import SCHEDULE_TOPIC
from trioha.wire.properties import decode_properties
from trioha.wire.record import decode_record

LEVELS = DelayLevels.parse("1s 5s 10s")


def delayed(side: ProduceSide, level: int, instant: Instant, **properties: str) -> None:
    pairs = {"DELAY": str(level), "TAGS": "TagA", "UNIQ_KEY": "U", **properties}
    text = "\x02".join(f"{name}\x01{value}" for name, value in pairs.items())
    assert side.send(send_v2(properties=text), instant).code == 0


def delivered(side: ProduceSide) -> list[int]:
    """Store timestamps, after the start, of what reached the real topic."""
    return [
        result.store_timestamp - WALL_MS
        for message, result in side.store.messages
        if message.topic == "T"
    ]


def run_all(side: ProduceSide, at_ms: int, now_ms: int) -> None:
    """Sleep until each deadline from `at_ms` to `now_ms` and run what is due, as the shell does."""
    while (deadline := side.schedule.next_deadline(WALL_MS + at_ms)) is not None:
        at_ms = max(at_ms, deadline - WALL_MS)
        if at_ms > now_ms:
            return
        while side.schedule.run_due(at(at_ms), 256):
            pass


def test_default_levels_are_those_of_rocketmq() -> None:
    delays = DelayLevels.parse(BrokerConfig().message_delay_level).delays_ms
    assert len(delays) == 18
    assert delays[:5] == (1_000, 5_000, 10_000, 30_000, 60_000)
    assert delays[-2:] == (3_600_000, 7_200_000)
    assert DelayLevels.parse("1d").delays_ms == (86_400_000,)


@pytest.mark.parametrize("text", ["", "  ", "1", "s", "1x", "-1s", "1s,5s", "1.5s"])
def test_levels_that_are_no_delays_are_a_config_error(text: str) -> None:
    with pytest.raises(ConfigError, match="messageDelayLevel"):
        DelayLevels.parse(text)


def test_message_is_delivered_when_its_level_says_and_not_before() -> None:
    side = ProduceSide()
    assert side.schedule.next_deadline(WALL_MS) is None
    delayed(side, 2, at(100))
    assert side.schedule.next_deadline(WALL_MS + 100) == WALL_MS + 5100
    assert not side.schedule.run_due(at(5099), 10)
    assert delivered(side) == []
    assert not side.schedule.run_due(at(5100), 10)
    assert delivered(side) == [5100]
    assert side.schedule.next_deadline(WALL_MS + 5100) is None


def test_delivered_record_is_the_stored_one_in_its_real_queue() -> None:
    side = ProduceSide()
    delayed(side, 1, at(), KEYS="k1 k2")
    side.schedule.run_due(at(1000), 10)
    (stored, _), (again, result) = side.store.messages
    assert (stored.topic, stored.queue_id) == (SCHEDULE_TOPIC, 0)
    assert (again.topic, again.queue_id) == ("T", 1)
    assert again.properties == stored.properties
    assert decode_properties(again.properties)["DELAY"] == "1"
    for name in ("flag", "sys_flag", "born_timestamp", "born_host", "store_host", "body"):
        assert getattr(again, name) == getattr(stored, name)
    assert again.tags_code == string_hash("TagA")
    assert list(again.keys) == [b"U", b"k1", b"k2"]
    assert again.reconsume_times == 0
    view = side.store.look_message(result.phy_offset)
    assert view is not None
    assert decode_record(view).queue_offset == 0


def test_entry_carries_its_delivery_time() -> None:
    side = ProduceSide()
    delayed(side, 3, at(7))
    assert side.store.messages[0][0].tags_code == WALL_MS + 7 + 10_000


def test_level_beyond_the_last_is_the_last() -> None:
    side = ProduceSide()
    delayed(side, 99, at())
    message = side.store.messages[0][0]
    assert message.queue_id == 17
    assert decode_properties(message.properties)["DELAY"] == "18"
    assert message.tags_code == WALL_MS + 7_200_000


def test_delivery_waits_for_neither_disk_nor_slave() -> None:
    side = ProduceSide(BrokerConfig(broker_role=BrokerRole.SYNC_MASTER))
    side.replicas.available = False
    delayed(side, 1, at(), WAIT="false")
    side.schedule.run_due(at(1000), 10)
    assert delivered(side) == [1000]
    assert side.pipeline.waiter_count == 0


def test_slave_never_delivers() -> None:
    side = ProduceSide()
    delayed(side, 1, at())
    side.pipeline.role = BrokerRole.SLAVE
    assert side.schedule.next_deadline(WALL_MS + 10_000) is None
    assert not side.schedule.run_due(at(10_000), 10)
    assert delivered(side) == []
    side.pipeline.role = BrokerRole.ASYNC_MASTER
    side.schedule.refresh()
    side.schedule.run_due(at(10_000), 10)
    assert delivered(side) == [10_000]


def test_full_disk_rests_the_level_for_ten_seconds() -> None:
    side = ProduceSide()
    delayed(side, 1, at())
    side.store.writable = False
    assert not side.schedule.run_due(at(1000), 10)
    assert side.schedule.next_deadline(WALL_MS + 1000) == WALL_MS + 11_000
    side.store.writable = True
    assert not side.schedule.run_due(at(10_999), 10)
    assert delivered(side) == []
    side.schedule.run_due(at(11_000), 10)
    assert delivered(side) == [11_000]


def test_rest_of_a_level_does_not_outlast_a_clock_set_back() -> None:
    side = ProduceSide()
    delayed(side, 1, at(100_000))
    side.store.writable = False
    side.schedule.run_due(at(101_000), 10)
    side.store.writable = True
    side.schedule.run_due(at(0), 10)
    assert delivered(side) == [0]


def test_delivery_time_much_further_than_the_level_allows_is_due_now() -> None:
    side = ProduceSide()
    delayed(side, 1, at(60_001))
    assert side.schedule.next_deadline(WALL_MS) == WALL_MS
    side.schedule.run_due(at(0), 10)
    assert delivered(side) == [0]


def test_clock_set_back_a_little_makes_messages_late_not_early() -> None:
    side = ProduceSide()
    delayed(side, 17, at(5))
    due_ms = WALL_MS + 5 + 3_600_000
    assert side.schedule.next_deadline(WALL_MS) == due_ms
    assert not side.schedule.run_due(at(0), 10)
    assert delivered(side) == []


def test_budget_bounds_one_turn_and_more_is_told() -> None:
    side = ProduceSide()
    for _ in range(25):
        delayed(side, 1, at())
    assert side.schedule.run_due(at(1000), 10)
    assert len(delivered(side)) == 10
    assert side.schedule.run_due(at(1000), 10)
    assert not side.schedule.run_due(at(1000), 10)
    assert len(delivered(side)) == 25


def test_flood_in_one_level_does_not_hold_up_another() -> None:
    side = ProduceSide()
    for _ in range(100):
        delayed(side, 1, at())
    delayed(side, 2, at())
    side.schedule.run_due(at(5000), 10)
    assert side.schedule.backlog()[1] == (5, 100)
    assert side.schedule.backlog()[2] == (1, 1)


def test_record_that_is_gone_is_skipped_and_journalled() -> None:
    side = ProduceSide()
    delayed(side, 1, at())
    delayed(side, 1, at())
    side.store.records.clear()
    delayed(side, 1, at())
    side.schedule.run_due(at(1000), 10)
    assert delivered(side) == [1000]
    assert [fields["index"] for fields in side.events.of("delivery_skipped")] == [0, 1]


def test_damaged_record_is_skipped_and_journalled() -> None:
    side = ProduceSide()
    delayed(side, 1, at())
    offset = side.store.messages[0][1].phy_offset
    side.store.records[offset] = b"\0" * 100
    side.schedule.run_due(at(1000), 10)
    assert delivered(side) == []
    assert side.schedule.backlog()[1] == (1, 1)
    assert side.events.names().count("delivery_skipped") == 1


@pytest.mark.parametrize(
    "properties",
    [
        "DELAY\x011",
        "REAL_TOPIC\x01T",
        "REAL_TOPIC\x01T\x02REAL_QID\x01x",
        "REAL_TOPIC\x01T\x02REAL_QID\x01-1",
        "REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC\x02REAL_QID\x010",
    ],
)
def test_record_that_does_not_say_where_it_belongs_is_no_message(properties: str) -> None:
    side = ProduceSide()
    delayed(side, 1, at())
    stored = side.store.messages[0][0]
    stored.properties = properties.encode()
    with pytest.raises(ValueError, match=r"REAL_|int"):
        delivered_message(decode_record(encode_record(stored, 0, 0, 1)))


def test_offsets_survive_their_file() -> None:
    side = ProduceSide()
    for level in (1, 1, 3):
        delayed(side, level, at())
    side.schedule.run_due(at(10_000), 10)
    assert side.schedule.dirty
    assert side.schedule.encode() == b'{"offsetTable":{1:2,3:1}}'
    side.schedule.load(side.schedule.encode())
    side.schedule.refresh()
    assert side.schedule.next_deadline(WALL_MS + 10_000) is None


def test_schedule_goes_on_after_a_restart_where_its_file_says() -> None:
    side = ProduceSide()
    for _ in range(3):
        delayed(side, 1, at())
    side.schedule.load(b'{"offsetTable":{"1":2,"77":5}}')
    side.schedule.refresh()
    side.schedule.run_due(at(1000), 10)
    assert len(delivered(side)) == 1


def test_offset_beyond_the_queue_moves_to_its_end() -> None:
    side = ProduceSide()
    delayed(side, 1, at())
    side.schedule.load(b'{"offsetTable":{1:9}}')
    side.schedule.refresh()
    assert side.schedule.backlog()[1] == (1, 1)
    delayed(side, 1, at())
    side.schedule.run_due(at(1000), 10)
    assert len(delivered(side)) == 1


def test_slave_keeps_the_offsets_of_a_master_that_is_ahead_of_it() -> None:
    side = ProduceSide()
    delayed(side, 1, at())
    side.pipeline.role = BrokerRole.SLAVE
    side.schedule.load(b'{"offsetTable":{1:9}}')
    side.schedule.refresh()
    side.schedule.on_scheduled(0)
    assert side.schedule.encode() == b'{"offsetTable":{1:9}}'
    assert not side.schedule.dirty


def test_offset_below_the_queue_moves_to_its_start() -> None:
    side = ProduceSide()
    for _ in range(5):
        delayed(side, 1, at())
    side.store.queue_minimum[SCHEDULE_TOPIC, 0] = 3
    side.schedule.load(b'{"offsetTable":{1:1}}')
    side.schedule.refresh()
    side.schedule.run_due(at(1000), 10)
    assert len(delivered(side)) == 2


def test_broken_offsets_are_an_error() -> None:
    with pytest.raises(RemoteProtocolError):
        ProduceSide().schedule.load(b"[]")


def test_queue_that_is_no_level_is_ignored() -> None:
    side = ProduceSide(attrs.evolve(BrokerConfig(), message_delay_level="1s"))
    side.schedule.on_scheduled(17)
    side.schedule.on_scheduled(-1)
    assert side.schedule.next_deadline(WALL_MS) is None


def test_diverted_message_overrides_what_a_client_smuggles_in() -> None:
    side = ProduceSide()
    delayed(side, 1, at(), REAL_TOPIC="../../etc", REAL_QID="-7")
    properties = decode_properties(side.store.messages[0][0].properties)
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("T", "1")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3000)), max_size=30),
    st.integers(0, 60_000),
)
def test_everything_is_delivered_once_and_on_time(
    sends: list[tuple[int, int]], end_ms: int
) -> None:
    side = ProduceSide()
    expected: list[int] = []
    now_ms = 0
    for level, pause_ms in sends:
        run_all(side, now_ms, now_ms + pause_ms)
        now_ms += pause_ms
        delayed(side, level, at(now_ms))
        expected.append(now_ms + side.levels.delays_ms[level - 1])
    run_all(side, now_ms, now_ms + end_ms)
    end_ms += now_ms
    assert sorted(delivered(side)) == sorted(due for due in expected if due <= end_ms)
    assert all(message.store_host == STORE_HOST for message, _ in side.store.messages)


def test_what_was_delivered_in_a_log_that_was_cut_is_delivered_again() -> None:
    """A master that comes back as slave has delivered what its new master knows nothing of."""
    side = ProduceSide()
    for at_ms in (0, 40_000, 80_000):
        delayed(side, 1, at(at_ms))
    run_all(side, 0, 90_000)
    assert side.schedule.offsets() == {1: 3}
    side.schedule.deliveries_cut(WALL_MS + 81_000)
    assert side.schedule.offsets() == {1: 2}, "the others lie in what is left of the log"
    side.schedule.deliveries_cut(WALL_MS + 30_000)
    assert side.schedule.offsets() == {1: 1}
    side.schedule.refresh()
    run_all(side, 90_000, 90_000)
    assert len(delivered(side)) == 5
