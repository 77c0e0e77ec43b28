"""The task of an alarm. `Alarm` is compiled, which no task can be."""

from __future__ import annotations

import trio

from trioha.services.loop.alarm import Alarm
from trioha.services.loop.clock import wake_time_s
from trioha.services.loop.ready_reads import ready_reads


async def ring(alarm: Alarm) -> None:
    """Ring an alarm at each of its deadlines, until cancelled.

    Errors: what its `on_time` raises.
    """
    reads = ready_reads()
    while reads is not None and reads.has_real_clock:
        await trio.lowlevel.checkpoint_if_cancelled()
        alarm.park(trio.lowlevel.current_task(), reads)
        await trio.lowlevel.wait_task_rescheduled(alarm.abort)
    while True:
        deadline_ms = alarm.arm_next()
        if deadline_ms is None:
            await alarm.nearer.wait()
            continue
        with trio.move_on_at(wake_time_s(deadline_ms)):
            await alarm.nearer.wait()
        alarm.ring_if_due()
