"""The task that sleeps until an alarm's deadline. `Alarm` is compiled, which no task can be."""

from __future__ import annotations

import trio

from trioha.services.loop.alarm import Alarm
from trioha.services.loop.clock import wake_time_s


async def ring(alarm: Alarm) -> None:
    """Ring an alarm at each of its deadlines, until cancelled."""
    while True:
        deadline_ms = alarm.arm_next()
        if deadline_ms is None:
            await alarm.nearer.wait()
            continue
        with trio.move_on_at(wake_time_s(deadline_ms)):
            await alarm.nearer.wait()
        alarm.ring_if_due()
