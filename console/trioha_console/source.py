"""Sources of the data on the screens: a live cluster, or a recording of one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from typing import Protocol

from trioha.config.secret_files import (
    SECRET_FILE_VARIABLE,
    SECRET_VARIABLE,
    operator_keyring,
)
from trioha.config.tls_files import tls_of_environment
from trioha.contexts import Context
from trioha.credentials import find_credentials
from trioha.errors import TriohaError
from trioha.remoting.channel import Instant
from trioha.watch.collector import Collector, Interest, Raw
from trioha.watch.questions import CLUSTER, STATUS, Question
from trioha.wire.address import parse_namesrvs
from trioha.wire.remoting_command import RemotingCommand
from trioha_console.budget import ProcessorBudget
from trioha_console.link import Links

PERIOD_S = 1.0
SELDOM_S = 5.0
"""Time between two looks at a cluster that is one of many on the screen."""
_TABLES_AT_ONCE = 16
"""Answers about topics and groups on their way: a thousand that come at once hold up the keys.

Each takes some milliseconds to read, so they are read one after the other with pauses.
"""
_UNNOTICED_S = 0.002
"""Reading time that delays no key noticeably: a pause after each topic costs more."""
_FIRST_S = 0.3
"""Time that a frame waits for answers on their way; later ones come with the next frame."""


class Source(Protocol):
    """Frames, and answers to what only one screen wants to know."""

    title: str
    """Name of the cluster or of the recording, for the header."""
    namesrvs: tuple[str, ...]
    live: bool
    """False for a recording: it can be looked at, not asked or changed."""
    thrifty: bool
    """The console has used up its share of a processor: large tables are read less often."""

    def snapshots(self) -> AsyncIterator[Raw]:
        """Raw answers, as `ClusterSnapshot.of` takes them, until the source ends."""

    def want(self, interest: Interest) -> None:
        """Set the answers that the screen in front needs beyond the brokers' own state."""

    async def ask(
        self, address: str, command: RemotingCommand, timeout_s: float | None = None
    ) -> RemotingCommand:
        """One question to one node. Errors: Unreachable, TriohaError in words."""

    async def close(self) -> None: ...


class LiveSource:
    """A cluster behind its name servers."""

    live = True
    thrifty = False

    def __init__(
        self,
        namesrvs: tuple[str, ...],
        *,
        title: str = "",
        period_s: float = PERIOD_S,
        links: Links | None = None,
    ) -> None:
        self.title = title or "; ".join(namesrvs)
        self.namesrvs = namesrvs
        self._period_s = period_s
        self._collector = Collector(namesrvs, period_ms=round(period_s * 1000))
        self._links = links or Links()
        self._tasks: set[asyncio.Task[None]] = set()
        self._wanted = asyncio.Event()
        self._all_in = asyncio.Event()
        """No answer is on its way."""
        self._tables: deque[Question] = deque()
        """Questions about topics and groups that wait for one of the askers."""
        self._askers = 0
        self._reading = asyncio.Lock()
        self._read_s = 0.0
        """Seconds of reading since the keys had their turn."""

    def want(self, interest: Interest) -> None:
        if interest != self._collector.interest:
            self._collector.interest = interest
            self._wanted.set()

    async def ask(
        self, address: str, command: RemotingCommand, timeout_s: float | None = None
    ) -> RemotingCommand:
        return await self._links.request(address, command, timeout_s)

    async def snapshots(self) -> AsyncIterator[Raw]:
        """One a period, and one soon after a screen has asked for something else."""
        budget = ProcessorBudget(time.monotonic(), time.process_time())
        while True:
            self.thrifty = budget.is_spent(time.monotonic(), time.process_time())
            self._collector.thrifty = self.thrifty
            self._ask_what_is_due()
            await self._answers_in(_FIRST_S)
            yield self._collector.raw(_now().wall_ms)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._period_s):
                    await self._wanted.wait()
            self._wanted.clear()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self._links.close()

    async def _answers_in(self, patience_s: float) -> None:
        """Wait until every answer is in, but no longer than `patience_s`."""
        if self._tasks:
            self._all_in.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._all_in.wait()

    def _ask_what_is_due(self) -> None:
        for question in self._collector.due(_now()):
            if question.key in (CLUSTER, STATUS):
                self._start(self._ask_now(question), f"console.ask[{question.address}]")
            else:
                self._tables.append(question)
        for _ in range(min(_TABLES_AT_ONCE - self._askers, len(self._tables))):
            self._askers += 1
            self._start(self._ask_tables(), "console.ask[tables]")

    def _start(self, asking: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.create_task(asking, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not self._tasks:
            self._all_in.set()

    async def _ask_now(self, question: Question) -> None:
        response = await self._response(question)
        if response is not None and self._collector.answered(question, response, _now()):
            # A broker that a name server names is asked at once.
            self._ask_what_is_due()

    async def _ask_tables(self) -> None:
        try:
            while self._tables:
                question = self._tables.popleft()
                response = await self._response(question)
                if response is not None and await self._read_table(question, response):
                    self._ask_what_is_due()
        finally:
            self._askers -= 1

    async def _response(self, question: Question) -> RemotingCommand | None:
        """Return the answer; None if there is none, which the collector knows then."""
        try:
            return await self._links.request(question.address, question.command())
        except TriohaError as error:
            self._collector.failed(question, str(error), _now())
            return None

    async def _read_table(self, question: Question, response: RemotingCommand) -> bool:
        """Read one answer at a time, and leave the loop to the keys for as long as that took."""
        came = _now()
        async with self._reading:
            began_s = time.monotonic()
            makes_due = self._collector.answered(question, response, came)
            self._read_s += time.monotonic() - began_s
            if self._read_s >= _UNNOTICED_S:
                await asyncio.sleep(self._read_s)
                self._read_s = 0.0
        return makes_due


def context_source(context: Context, *, period_s: float = PERIOD_S) -> LiveSource:
    """The cluster of a context, with its secrets and certificates.

    Errors: ConfigError when a secret is missing: nobody can be asked for it here.
    """
    account = find_credentials(os.environ, context.access_key, context.secret_key)
    keyring = operator_keyring()
    if context.secret_file and not {SECRET_VARIABLE, SECRET_FILE_VARIABLE} & os.environ.keys():
        keyring = operator_keyring({SECRET_FILE_VARIABLE: context.secret_file})
    tls = tls_of_environment(os.environ, context.tls)
    links = Links(keyring=keyring, credentials=account, tls=tls)
    namesrvs = parse_namesrvs(context.namesrv)
    return LiveSource(namesrvs, title=context.name, period_s=period_s, links=links)


def context_source_seldom(context: Context) -> LiveSource:
    """The same at the rhythm for one cluster of many. Errors: ConfigError."""
    return context_source(context, period_s=SELDOM_S)


def _now() -> Instant:
    return Instant(time.monotonic_ns() // 1_000_000, time.time_ns() // 1_000_000)
