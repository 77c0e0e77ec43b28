"""A name server on Trio: connections, expiry, and the KV file."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import attrs
import trio

from trioha.config import NamesrvConfig
from trioha.config.exposure import check_exposure, is_exposed
from trioha.config.secret_files import cluster_keyring
from trioha.errors import RemoteProtocolError, StoreError
from trioha.journal import EventSink
from trioha.namesrv.kv_config import KvConfig
from trioha.namesrv.processor import NamesrvProcessor
from trioha.remoting.channel import Channel
from trioha.remoting.requests import RequestTable
from trioha.remoting.traffic_budget import TrafficBudget
from trioha.security.requirements import (
    Port,
    body_limits,
    check_declared,
    check_pages_declared,
)
from trioha.security.secret_guard import SecretGuard
from trioha.services.admin.event_counts import EventCounts
from trioha.services.admin.health import alive, namesrv_checks, ready
from trioha.services.admin.http import open_admin_listener, serve_http
from trioha.services.admin.introspection import Introspection, NodeProcess
from trioha.services.loop.alarm import Alarm
from trioha.services.loop.clock import Clock
from trioha.services.loop.host import random_bytes, run_blocking
from trioha.services.loop.ringing import ring
from trioha.services.loop.signal import Signal
from trioha.services.loop.transport import Listener, format_address, open_listener
from trioha.services.namesrv.metrics import namesrv_metrics
from trioha.services.node.access_control import namesrv_access
from trioha.services.node.tls import NodeTls
from trioha.services.remoting.own_address import own_address
from trioha.services.remoting.server import RemotingServer, server_limits
from trioha.store import config_files
from trioha.wire.codes import FRAME_BYTES_MAX

_LAST_WRITE_S = 5.0


@attrs.frozen
class NamesrvAddresses:
    """Addresses of a name server, as ``host:port``."""

    listen: str
    admin_http: str = ""
    """Empty when the port could not be had, or is not wanted."""


async def serve_namesrv(
    config: NamesrvConfig,
    shutdown: trio.Event,
    events: EventSink,
    *,
    clock: Clock | None = None,
    process: NodeProcess | None = None,
    listener: Listener | None = None,
    task_status: trio.TaskStatus[NamesrvAddresses] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `shutdown` is set; `task_status` gets the addresses once it accepts connections.

    `listener` is an open port in place of the configured one.
    Durability: a KV change is answered when it is on disk.
    Errors: TriohaError when the address is taken, or the KV file or the secret is unreadable.
    """
    clock = clock or Clock()
    keyring = cluster_keyring(config)
    check_exposure(config, keyring)
    insecure = is_exposed(config, keyring)
    if insecure:
        events.event("node_insecure", address=config.bind_address)
    events = counts = EventCounts(events)
    path = _path_of(config)
    kv = await run_blocking(partial(_load, path))
    processor = NamesrvProcessor(config, kv, events, keyring, random_bytes)
    keeper = _KvKeeper(path, processor, events)
    introspection = Introspection(process or NodeProcess(), lambda: config, clock)
    access = await run_blocking(partial(namesrv_access, config, events))
    handlers = processor.handlers() | introspection.handlers()
    check_declared(Port.NAMESRV, handlers)
    guard = access.guard or SecretGuard(Port.NAMESRV, processor.proofs, events)
    handlers = {code: guard.guarded(code, handler) for code, handler in handlers.items()}
    alarm = Alarm(clock, lambda: processor.next_deadline_ms, processor.on_time)

    def on_batch() -> None:
        alarm.check()
        keeper.check()

    def on_closed(channel: Channel) -> None:
        # Connections that we close at the end say nothing about their brokers.
        if not shutdown.is_set():
            processor.channel_closed(channel)

    traffic = TrafficBudget(config.traffic_bytes_max)
    server = RemotingServer(
        RequestTable(handlers, events).handle,
        clock,
        events,
        limits=server_limits(config, body_limits(Port.NAMESRV, FRAME_BYTES_MAX), traffic),
        connections_max=config.connections_max,
        on_closed=on_closed,
        on_batch=on_batch,
    )
    tls = await run_blocking(lambda: NodeTls(config, events, clock))
    listener = listener or open_listener(config.bind_address, config.listen_port, tls.accepted)
    admin = open_admin_listener(config, listener, events, tls.accepted_http)
    pages = {
        "/metrics": namesrv_metrics(
            processor,
            counts,
            traffic,
            server,
            insecure=insecure,
            certificate_end_s=tls.end_s,
        ),
        "/livez": alive,
        "/readyz": ready(namesrv_checks),
    }
    check_pages_declared(pages)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keeper.run, name="namesrv.kv_config_persist")
            nursery.start_soon(ring, alarm, name="namesrv.scan_not_active_broker")
            nursery.start_soon(introspection.run, name="namesrv.journal_stream")
            if access.has_files:
                nursery.start_soon(access.run, name="namesrv.acl_files")
            nursery.start_soon(tls.run, name="namesrv.tls_files")
            async with trio.open_nursery() as accepting:
                accepting.start_soon(server.accept, listener, nursery, name="namesrv.accept")
                own_ip = own_address(listener.host)
                address = NamesrvAddresses(format_address(own_ip, listener.port))
                if admin is not None:
                    nursery.start_soon(serve_http, admin, pages, name="namesrv.admin_http")
                    address = attrs.evolve(address, admin_http=format_address(own_ip, admin.port))
                events.event("node_ready", **attrs.asdict(address))
                task_status.started(address)
                await shutdown.wait()
                events.event("node_stopping", reason="asked to")
                accepting.cancel_scope.cancel()
            await server.part()
            nursery.cancel_scope.cancel()
    finally:
        listener.close()
        if admin is not None:
            admin.close()
        with trio.move_on_after(_LAST_WRITE_S, shield=True):
            await keeper.save_rest()


class _KvKeeper:
    """Writes the KV file: one write for all the changes made during the one before."""

    def __init__(self, path: Path, processor: NamesrvProcessor, events: EventSink) -> None:
        self._path = path
        self._processor = processor
        self._events = events
        self._changed = Signal()

    def check(self) -> None:
        """Wake the writer if something has changed; for the end of a batch."""
        if self._processor.has_unsaved:
            self._changed.set()

    async def run(self) -> None:
        while True:
            await self._changed.wait()
            if self._processor.has_unsaved:
                await self._save()

    async def save_rest(self) -> None:
        """Write once more, if the last change came too late for its write, or that failed."""
        if not self._processor.is_on_disk:
            await self._save()

    async def _save(self) -> None:
        unsaved = self._processor.take_unsaved()
        try:
            # The thread ends by itself: a cancelled write is finished before we go on.
            await run_blocking(partial(config_files.save, self._path, unsaved.data))
        except OSError as error:
            self._events.event("task_failed", task=f"save {self._path.name}", error=str(error))
            unsaved.answer(failure=str(error))
        else:
            self._processor.saved(unsaved)


def _path_of(config: NamesrvConfig) -> Path:
    return Path(config.kv_config_path).expanduser()


def _load(path: Path) -> KvConfig:
    try:
        data = config_files.load(path)
        return KvConfig() if data is None else KvConfig.decode(data)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}; name another file (kvConfigPath)") from error
    except RemoteProtocolError as error:
        raise StoreError(f"{path}: {error}; correct it or move it away") from None
