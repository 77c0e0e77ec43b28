"""A node's answers about itself: its journal, its tasks, its settings.

Requests 30002, 30004 and 30005, the same on brokers and name servers; msgpack bodies. Any client
that reaches the port may ask, so nothing secret is in an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

import attrs
import msgpack

from trioha.config import BrokerConfig, NamesrvConfig, key_of, without_secret
from trioha.journal.file import JournalFile
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.services.admin.journal_stream import JournalStream
from trioha.services.admin.task_tree import task_tree
from trioha.services.loop.clock import Clock
from trioha.wire.codes import RequestCode
from trioha.wire.remoting_command import RemotingCommand

_CHANGED = "set over the wire (request 25)"


@attrs.frozen
class NodeProcess:
    """The process that a node runs in, as its answers describe it."""

    journal: JournalFile | None = None
    origins: Mapping[str, str] = attrs.field(factory=dict)
    """Key -> where its value comes from."""
    certificate_end_s: Callable[[], float | None] = lambda: None
    """Returns when the first certificate of this node expires, in seconds since 1970."""


class Introspection:
    """`config` gives the settings as they are now, some can be changed over the wire."""

    def __init__(
        self,
        process: NodeProcess,
        config: Callable[[], BrokerConfig | NamesrvConfig],
        clock: Clock,
    ) -> None:
        self._process = process
        self._config = config
        self._started_with = config()
        self._journal_stream = JournalStream(process.journal, clock)

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.TRIOHA_JOURNAL_STREAM: self._journal_stream.handle,
            RequestCode.TRIOHA_NODE_TASKS: self.node_tasks,
            RequestCode.TRIOHA_NODE_CONFIG: self.node_config,
        }

    async def run(self) -> None:
        """Serve the followers of the journal."""
        await self._journal_stream.run()

    def node_tasks(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        return request.response(body=msgpack.packb(task_tree()))

    def node_config(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        config = self._config()
        settings = []
        for field in attrs.fields(type(config)):
            key, value = key_of(field), getattr(config, field.name)
            if value != getattr(self._started_with, field.name):
                origin = _CHANGED
            else:
                origin = self._process.origins.get(key, "")
            if isinstance(value, Enum):
                value = value.value
            settings.append(
                {
                    "key": key,
                    "value": without_secret(key, value),
                    "origin": origin,
                    "doc": field.metadata["doc"],
                }
            )
        return request.response(body=msgpack.packb({"settings": settings}))
