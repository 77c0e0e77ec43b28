from __future__ import annotations

import re
from pathlib import Path

from support.handlers.consuming import ConsumeSide, request
from support.handlers.sending import WALL_MS, at

from trioha.broker.runtime_info import _day
from trioha.remoting.channel import Instant
from trioha.wire.bodies import decode_kv_table
from trioha.wire.codes import RequestCode

PARSED_BY_TOOLS = {
    "putTps",
    "getTransferedTps",
    "getTransferredTps",
    "brokerVersionDesc",
    "sendThreadPoolQueueSize",
    "pullThreadPoolQueueSize",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "pageCacheLockTimeMills",
    "earliestMessageTimeStamp",
    "commitLogDiskRatio",
    "msgPutTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgPutTotalTodayNow",
    "msgGetTotalYesterdayMorning",
    "msgGetTotalTodayMorning",
    "msgGetTotalTodayNow",
    "brokerActive",
    "EndTransactionQueueSize",
    "EndTransactionThreadPoolQueueCapacity",
    "commitLogDirCapacity",
    "dispatchMaxBuffer",
    "putLatency99",
    "putLatency999",
    "putMessageAverageSize",
    "putMessageDistributeTime",
    "putMessageEntireTimeMax",
    "putMessageFailedTimes",
    "queryThreadPoolQueueCapacity",
    "queryThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueSize",
    "remainHowManyDataToFlush",
    "remainTransientStoreBufferNumbs",
    "bootTimestamp",
    "runtime",
    "commitLogMinOffset",
    "commitLogMaxOffset",
    "dispatchBehindBytes",
    "scheduleMessageOffset_1",
    "scheduleMessageOffset_18",
}
OF_JAVA = Path(__file__).parents[1] / "wire/golden/mqadmin/28-GET_BROKER_RUNTIME_INFO.response.bin"
DAY_MS = 86_400_000


def table(side: ConsumeSide, now_ms: int = 0) -> dict[str, str]:
    response = side.ask(request(RequestCode.GET_BROKER_RUNTIME_INFO), now_ms=now_ms)
    return decode_kv_table(response.body_bytes())


def put(side: ConsumeSide, count: int) -> None:
    for _ in range(count):
        side.put()


def test_every_key_that_tools_parse_is_there_in_their_form() -> None:
    info = table(ConsumeSide(), now_ms=93_784_000)
    assert set(info) >= PARSED_BY_TOOLS
    for key in ("putTps", "getTransferedTps", "getTransferredTps"):
        assert len([float(rate) for rate in info[key].split(" ")]) == 3
    assert info["brokerVersionDesc"] == "V4_9_8"
    assert 0 <= float(info["commitLogDiskRatio"]) <= 1
    assert int(info["earliestMessageTimeStamp"]) == -1
    assert info["bootTimestamp"] == str(WALL_MS)
    assert info["runtime"] == "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"
    assert info["scheduleMessageOffset_1"] == "0,0"


def test_log_is_described() -> None:
    side = ConsumeSide()
    put(side, 2)
    info = table(side)
    assert info["commitLogMaxOffset"] == str(side.store.max_phy_offset)
    assert info["earliestMessageTimeStamp"] == str(WALL_MS)
    assert info["msgPutTotalTodayNow"] == "2"


def test_rates_over_three_windows() -> None:
    side = ConsumeSide()
    runtime = side.admin.runtime_info
    for second in range(10, 610, 10):
        put(side, 1)
        runtime.sample(at(second * 1_000))
    put(side, 39)  # ten seconds of 4 a second, the last sample's one included
    assert table(side, now_ms=610_000)["putTps"] == "3.90 0.73 0.16"


def test_rates_of_a_young_broker_count_from_its_start() -> None:
    side = ConsumeSide()
    put(side, 10)
    assert table(side, now_ms=2_000)["putTps"] == "5.00 5.00 5.00"
    assert table(side, now_ms=0)["putTps"] == "0.00 0.00 0.00"


def test_samples_are_bounded() -> None:
    side = ConsumeSide()
    runtime = side.admin.runtime_info
    for millisecond in range(0, 3_000_000, 1_000):
        runtime.sample(at(millisecond))
    assert len(runtime._samples) <= 256
    assert runtime._samples[-1].now_ms - runtime._samples[0].now_ms > 600_000


def test_day_turns() -> None:
    side = ConsumeSide()
    runtime = side.admin.runtime_info
    put(side, 3)
    assert _day(WALL_MS + DAY_MS) == _day(WALL_MS) + 1
    runtime.sample(Instant(DAY_MS, WALL_MS + DAY_MS))
    put(side, 2)
    info = runtime.table(Instant(DAY_MS + 1, WALL_MS + DAY_MS + 1))
    assert info["msgPutTotalTodayMorning"] == "3"
    assert info["msgPutTotalTodayNow"] == "5"
    assert info["msgPutTotalYesterdayMorning"] == "0"
    runtime.sample(Instant(2 * DAY_MS, WALL_MS + 2 * DAY_MS))
    info = runtime.table(Instant(2 * DAY_MS, WALL_MS + 2 * DAY_MS))
    assert info["msgPutTotalYesterdayMorning"] == "3"
    assert info["msgPutTotalTodayMorning"] == "5"


def test_how_long_puts_took_is_told_for_the_minute_under_way() -> None:
    side = ConsumeSide()
    put(side, 6)
    side.pipeline.slave_waits.add(3, 9)
    side.pipeline.slave_waits.add(1, 10_000)
    info = table(side, now_ms=50_000)
    ranges = info["putMessageDistributeTime"]
    assert ranges.startswith("[<=0ms]:2 [0~10ms]:3 [10~50ms]:0 ")
    assert ranges.endswith("[5~10s]:0 [10s~]:1 ")
    assert info["putMessageEntireTimeMax"] == "10000"
    assert info["putLatency99"] == "10000.00"
    (javas,) = re.findall(r'"putMessageDistributeTime":"([^"]*)"', OF_JAVA.read_text("latin-1"))
    assert re.sub(r":\d+", ":", ranges) == re.sub(r":\d+", ":", javas)
    side.admin.runtime_info.sample(at(60_000))
    put(side, 1)
    side.pipeline.slave_waits.add(1, 9)
    info = table(side, now_ms=61_000)
    ranges = info["putMessageDistributeTime"]
    assert ranges.startswith("[<=0ms]:0 [0~10ms]:1 ")
    assert ranges.endswith("[10s~]:0 ")
    assert info["putLatency99"] == "10000.00"  # of the minute before
    side.admin.runtime_info.sample(at(120_000))
    assert table(side, now_ms=121_000)["putLatency99"] == "9.98"  # between 8 and 10
