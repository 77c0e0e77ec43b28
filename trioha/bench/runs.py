"""One coroutine per benchmark: prepare the cluster, run the load, return the figures."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractAsyncContextManager
from typing import Any

import attrs
import trio

from trioha.bench.catch_up import watch_catch_up
from trioha.bench.drain import DrainLoad, DrainReport
from trioha.bench.end_to_end import EndToEndLoad, EndToEndOptions
from trioha.bench.histogram import Histogram
from trioha.bench.produce import ProduceLoad, ProduceOptions, ProduceReport
from trioha.bench.setup import BenchResult, BenchSetup
from trioha.bench.target import BenchTarget, open_target, run_load
from trioha.client import MessageQueue, ReceivedMessage, open_push_consumer
from trioha.client.message import ConsumeFrom
from trioha.client.queue_task import PushConsumerConfig
from trioha.credentials import current_credentials
from trioha.errors import TriohaError
from trioha.shown import own_stream
from trioha.wire.codes import SerializeType

Targets = list[tuple[MessageQueue, str]]

_OWN_BACKLOG = 500_000
_FILL_BATCH = 25
_FILL_CONCURRENCY = 16
"""Four times a hundred messages in a round: each number of a filter as often."""
_TIMERS_DUE_S = 86_400
_CATCH_UP_S = 600.0
_SILENCE_S = 10.0
# Bytes of a record beside its body: fixed part, topic, properties. Close enough to fill by.
_RECORD_EXTRA = 200


async def run_produce(
    setup: BenchSetup, *, header: str, timers: int = 0, **load: Any
) -> BenchResult:
    """`trioha bench produce`; `load` goes into `ProduceOptions` as it is."""
    options = ProduceOptions(
        size=setup.size,
        serialize_type=SerializeType.JSON if header == "json" else SerializeType.ROCKETMQ,
        id_prefix=_id_prefix(),
        **load,
    )
    async with _open(setup) as target:
        if timers:
            await _fill(target, setup, timers, delay_s=_TIMERS_DUE_S)
        report = await _send(target, setup, options)
    facts = setup.facts()
    facts |= {name: load[name] for name in ("concurrency", "connections", "batch", "rate")}
    facts |= {"timers pending": timers} if timers else {}
    facts |= {"transactions": "committed at once"} if options.transactional else {}
    return BenchResult("produce", {**facts, "header": header}, report)


async def run_consume(
    setup: BenchSetup,
    *,
    count: int | None,
    pull_count: int,
    push: bool,
    filter_percent: int | None = None,
) -> BenchResult:
    """`trioha bench consume`."""
    if count is None:
        count = _OWN_BACKLOG if setup.namesrv is None else 0
    is_filtered = filter_percent is not None
    if is_filtered and setup.namesrv is None:
        setup = attrs.evolve(setup, settings=("enablePropertyFilter=true", *setup.settings))
    async with _open(setup) as target:
        targets = await target.prepare_topic(setup.topic, setup.queues)
        if count:
            await _fill(target, setup, count, is_numbered=is_filtered)
        offsets = await target.admin.offsets(setup.topic)
        targets = [(queue, address) for queue, address in targets if _has_backlog(offsets[queue])]
        if not targets:
            raise TriohaError(f"topic {setup.topic} holds no messages; --count puts some there")
        if push:
            report = await _drain_by_push(target, setup, offsets)
        else:
            sql = f"n < {filter_percent}" if is_filtered else ""
            report = await _drain_by_pull(setup, targets, offsets, pull_count, sql)
    facts = {**setup.facts(), "by": "push consumer" if push else f"pulls of {pull_count}"}
    facts |= {"filter takes": f"{filter_percent} %"} if is_filtered else {}
    return BenchResult("consume", facts, report)


async def run_e2e(
    setup: BenchSetup, *, seconds: float, warm_up_s: float, rate: float, delay_ms: int
) -> BenchResult:
    """`trioha bench e2e`."""
    options = EndToEndOptions(
        size=setup.size,
        rate=rate,
        seconds=seconds,
        warm_up_s=warm_up_s,
        delay_ms=delay_ms,
        id_prefix=_id_prefix(),
    )
    line = ProgressLine(setup.quiet)

    def progress(elapsed_s: float, messages: int, histogram: Histogram) -> None:
        line.show(elapsed_s, f"{messages:,} msg/s  {line.latencies(histogram)}")

    async with _open(setup) as target:
        targets = await target.prepare_topic(setup.topic, setup.queues)
        address = targets[0][1]
        queues = [queue for queue, master in targets if master == address]
        offsets = await target.admin.offsets(setup.topic)
        begins = [offsets[queue][1] for queue in queues]
        load = EndToEndLoad(queues, begins, address, options, progress)
        report = await run_load(load.run, load.stop)
    facts = setup.facts() | ({"delay ms": delay_ms} if delay_ms else {})
    return BenchResult("e2e", facts, report)


async def run_ha(setup: BenchSetup, *, mb: int) -> BenchResult:
    """`trioha bench ha`."""
    line = ProgressLine(setup.quiet)

    def progress(elapsed_s: float, log_end: int) -> None:
        line.show(elapsed_s, f"slave has {log_end / 1e6:,.0f} MB")

    async with _open(setup) as target:
        targets = await target.prepare_topic(setup.topic, setup.queues)
        master = targets[0][1]
        await _fill(target, setup, mb * 1_000_000 // (setup.size + _RECORD_EXTRA) + 1)
        end = await target.admin.log_end(master)
        slave = await target.start_slave()
        ready_s = trio.current_time()
        with trio.move_on_after(_CATCH_UP_S) as patience:
            report = await watch_catch_up(target.admin, slave.address, end, ready_s, progress)
        if patience.cancelled_caught:
            raise TriohaError(f"the slave did not catch up within {_CATCH_UP_S:g} s")
    return BenchResult("ha", setup.facts(), report)


def _open(setup: BenchSetup) -> AbstractAsyncContextManager[BenchTarget]:
    return open_target(setup.namesrv, role=setup.role, slaves=setup.slaves, settings=setup.settings)


async def _send(target: BenchTarget, setup: BenchSetup, options: ProduceOptions) -> ProduceReport:
    line = ProgressLine(setup.quiet)

    def progress(elapsed_s: float, messages: int, histogram: Histogram, refusals: int) -> None:
        text = f"{messages:,} msg/s  {line.latencies(histogram)}"
        line.show(elapsed_s, f"{text}  {refusals} refused" if refusals else text)

    targets = await target.prepare_topic(setup.topic, setup.queues)
    load = ProduceLoad(targets, options, progress)
    return await run_load(load.run, load.stop)


async def _fill(
    target: BenchTarget,
    setup: BenchSetup,
    count: int,
    *,
    is_numbered: bool = False,
    delay_s: int = 0,
) -> None:
    """Put messages there, in batches; timer messages one by one, as RocketMQ asks for."""
    options = ProduceOptions(
        size=setup.size,
        batch=1 if delay_s else _FILL_BATCH,
        is_numbered=is_numbered,
        delay_s=delay_s,
        concurrency=_FILL_CONCURRENCY,
        count=count,
        warm_up_s=0.0,
        id_prefix=_id_prefix(),
    )
    report = await _send(target, setup, options)
    if report.refusals:
        raise TriohaError(f"the backlog was refused by codes {report.refusals}")


async def _drain_by_pull(
    setup: BenchSetup,
    targets: Targets,
    offsets: dict[MessageQueue, tuple[int, int]],
    pull_count: int,
    sql: str,
) -> DrainReport:
    line = ProgressLine(setup.quiet)

    def progress(elapsed_s: float, messages: int, total: int) -> None:
        line.show(elapsed_s, f"{messages:,} msg/s  {total:,} in all")

    begins = [offsets[queue][0] for queue, _ in targets]
    load = DrainLoad(
        targets,
        count=pull_count,
        begin_offsets=begins,
        progress=progress,
        credentials=current_credentials(),
        sql=sql,
    )
    return await run_load(load.run, load.stop)


async def _drain_by_push(
    target: BenchTarget, setup: BenchSetup, offsets: dict[MessageQueue, tuple[int, int]]
) -> DrainReport:
    wanted = sum(end - begin for begin, end in offsets.values())
    tally = _Tally(wanted, trio.Event())
    line = ProgressLine(setup.quiet)

    async def handle(message: ReceivedMessage) -> None:
        tally.count(len(message.body))

    cpu_s = time.process_time()
    begin_s = trio.current_time()
    group = f"trioha_bench_{time.time_ns()}"
    config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST)
    subscriptions = {setup.topic: "*"}
    async with open_push_consumer(target.namesrv, group, subscriptions, handle, config=config):
        best = last = 0
        while not tally.complete.is_set():
            with trio.move_on_after(1.0):
                await tally.complete.wait()
            best, last = max(best, tally.messages - last), tally.messages
            line.show(trio.current_time() - begin_s, f"{tally.messages:,} in all")
            if trio.current_time() - max(tally.last_s, begin_s) > _SILENCE_S:
                raise TriohaError(f"{tally.messages} of {wanted} messages came, then none")
    seconds = tally.last_s - tally.first_s
    return DrainReport(
        messages=tally.messages,
        seconds=round(seconds, 3),
        messages_per_s=round(tally.messages / seconds, 1),
        looked_at_per_s=round(tally.messages / seconds, 1),
        body_mb_per_s=round(tally.body_bytes / seconds / 1e6, 2),
        best_second=best,
        client_cpu_us_per_message=round((time.process_time() - cpu_s) / wanted * 1e6, 2),
    )


@attrs.define
class _Tally:
    """Count of the messages that a push consumer received."""

    wanted: int
    complete: trio.Event
    messages: int = 0
    body_bytes: int = 0
    first_s: float = 0.0
    last_s: float = 0.0

    def count(self, body_bytes: int) -> None:
        if not self.messages:
            self.first_s = trio.current_time()
        self.messages += 1
        self.body_bytes += body_bytes
        if self.messages % 64 == 0 or self.messages >= self.wanted:
            self.last_s = trio.current_time()
        if self.messages >= self.wanted:
            self.complete.set()


def _has_backlog(offsets: tuple[int, int]) -> bool:
    return offsets[1] > offsets[0]


def _id_prefix() -> str:
    """The first 24 digits of this run's UNIQ_KEYs."""
    return f"{time.time_ns():024X}"[-24:]


class ProgressLine:
    """One line that is written over on a terminal, one line a second elsewhere."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._end = "\r" if sys.stderr.isatty() else "\n"

    def show(self, elapsed_s: float, text: str) -> None:
        if not self._quiet:
            stream = own_stream(sys.stderr)
            stream.write(f"{elapsed_s:6.1f} s  {text:<70}{self._end}")
            stream.flush()

    def latencies(self, histogram: Histogram) -> str:
        p50_ms, p99_ms = (histogram.percentile_ns(percent) / 1e6 for percent in (50, 99))
        return f"p50 {p50_ms:.3f} ms  p99 {p99_ms:.3f} ms" if histogram.count else "warming up"
