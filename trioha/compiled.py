"""Modules that a compiled build compiles, and the kind of build that runs.

The list below is the only one. The rules its modules keep, and why they are compiled at all, are
in docs/decisions/0009-compiled-hot-modules.md. Without compilation the same sources run as they
lie: an extension beside its source is what Python imports first.
"""

from __future__ import annotations

import json
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import NamedTuple

HOT_MODULES: tuple[str, ...] = (
    "trioha.wire.batch",
    "trioha.wire.fields_template",
    "trioha.wire.java_hash",
    "trioha.wire.message_id",
    "trioha.wire.need_data",
    "trioha.wire.packed_fields",
    "trioha.wire.properties",
    "trioha.wire.record",
    "trioha.wire.record_chain",
    "trioha.wire.remoting_command",
    "trioha.wire.unique_id",
    "trioha.remoting.channel",
    "trioha.remoting.connection",
    "trioha.remoting.fast_failure",
    "trioha.remoting.mode",
    "trioha.remoting.outbox",
    "trioha.remoting.outboxes",
    "trioha.remoting.requests",
    "trioha.security.accounts",
    "trioha.security.auth_guard",
    "trioha.security.guard",
    "trioha.security.signing_key",
    "trioha.dledger.entry_dispatcher",
    "trioha.dledger.entry_handler",
    "trioha.dledger.leader_elector",
    "trioha.dledger.leadership",
    "trioha.dledger.member_state",
    "trioha.dledger.membership",
    "trioha.dledger.message_codec",
    "trioha.dledger.messages",
    "trioha.dledger.node",
    "trioha.dledger.quorum",
    "trioha.dledger.ready",
    "trioha.dledger.term_table",
    "trioha.dledger.transfer",
    "trioha.ha.events",
    "trioha.ha.group_commit",
    "trioha.ha.master_connection",
    "trioha.ha.replicas",
    "trioha.ha.slave_connection",
    "trioha.store.commitlog",
    "trioha.store.consume_queue",
    "trioha.store.dispatcher",
    "trioha.store.index_file",
    "trioha.store.index_files",
    "trioha.store.index_hash",
    "trioha.store.lookup",
    "trioha.store.mapped_file",
    "trioha.store.mapped_file_queue",
    "trioha.store.message_store",
    "trioha.store.put_values",
    "trioha.store.record_bytes",
    "trioha.store.record_filter",
    "trioha.store.record_sizes",
    "trioha.store.write_gate",
    "trioha.store.writer",
    "trioha.broker.clients",
    "trioha.broker.cold_reads",
    "trioha.broker.core",
    "trioha.broker.deliveries",
    "trioha.broker.message_fields",
    "trioha.broker.metadata",
    "trioha.broker.metadata_waits",
    "trioha.broker.parking",
    "trioha.broker.pop.cursors",
    "trioha.broker.pop.hold",
    "trioha.broker.property_shape",
    "trioha.broker.pull",
    "trioha.broker.pull_check",
    "trioha.broker.pull_hold",
    "trioha.broker.put_message",
    "trioha.broker.raft.admin",
    "trioha.broker.raft.log",
    "trioha.broker.raft.metadata",
    "trioha.broker.raft.metadata_log",
    "trioha.broker.request_gate",
    "trioha.broker.send",
    "trioha.broker.send_batch",
    "trioha.broker.send_check",
    "trioha.broker.send_header",
    "trioha.broker.sql.known_answers",
    "trioha.broker.topics",
    "trioha.broker.transactions.end",
    "trioha.broker.transactions.pending",
    "trioha.broker.transactions.queues",
    "trioha.broker.transactions.records",
    "trioha.broker.transactions.service",
    "trioha.broker.visibility",
    "trioha.broker.wait_histogram",
    "trioha.services.ha.client_link",
    "trioha.services.ha.master_link",
    "trioha.services.ha.slave_links",
    "trioha.services.loop.alarm",
    "trioha.services.loop.clock",
    "trioha.services.loop.parked_reader",
    "trioha.services.loop.ready_reads",
    "trioha.services.loop.socket_stream",
    "trioha.services.loop.wakeup",
    "trioha.services.node.batch_end",
    "trioha.services.node.log_growth",
    "trioha.services.raft.listener",
    "trioha.services.raft.member",
    "trioha.services.raft.peer_sends",
    "trioha.services.raft.ready",
    "trioha.services.raft.reads",
    "trioha.services.raft.role",
    "trioha.services.raft.watch",
    "trioha.services.remoting.link_sender",
    "trioha.services.remoting.turns",
)

SHARED_LIBRARY = "trioha.compiled_code__mypyc"
"""Holds the code of all of them; each module's own extension only points into it."""

ROOT = Path(__file__).resolve().parent.parent
_STAMP = ROOT / "trioha" / "compiled_sources.json"


class Build(NamedTuple):
    """Kind of build that runs, as `trioha version` prints it."""

    compiled: bool
    stale: tuple[str, ...] = ()
    """Modules whose source has changed since: the old code is what runs."""
    trained: bool = False
    """Its code is laid out by a load (docs/decisions/0029-a-load-shapes-the-wheels.md)."""

    def __str__(self) -> str:
        if not self.compiled:
            return "pure Python"
        if not self.stale:
            trained = ", trained" if self.trained else ""
            return f"compiled with mypyc ({len(HOT_MODULES)} modules{trained})"
        return (
            f"compiled with mypyc, but older than {', '.join(self.stale)}: "
            "run `just compile`, or `just pure`"
        )


def this_build() -> Build:
    """The build that is imported."""
    if not library_path().exists():
        return Build(compiled=False)
    try:
        stamp = json.loads(_STAMP.read_bytes())
        compiled_from, trained = stamp["sources"], bool(stamp["trained"])
    except (OSError, ValueError, KeyError):
        compiled_from, trained = {}, False
    sources = source_digests()
    return Build(
        compiled=True,
        stale=tuple(name for name in HOT_MODULES if compiled_from.get(name) != sources[name]),
        trained=trained,
    )


def library_path() -> Path:
    """Return the path of the shared library of a compiled build; it may not exist."""
    return ROOT / (SHARED_LIBRARY.replace(".", "/") + EXTENSION_SUFFIXES[0])


def source_path(module: str) -> Path:
    return ROOT / (module.replace(".", "/") + ".py")


def source_digests() -> dict[str, str]:
    """The sources that a compiled build is made of, as they are now."""
    return {name: sha256(source_path(name).read_bytes()).hexdigest() for name in HOT_MODULES}
