"""The checks of a broker's /readyz (`services.admin.health`)."""

from __future__ import annotations

from collections.abc import Iterator

from trioha.services.admin.health import Check
from trioha.services.node.views import CheckedBroker
from trioha.store.message_store import FileMessageStore


def broker_checks(node: CheckedBroker) -> Iterator[Check]:
    """A broker is ready when it takes part: serves, is in the routes, and writes or follows."""
    yield "serving", "it is stopping" if node.stopping else ""
    wanted, held = node.config.namesrv_addr, node.registration.registered
    if wanted:
        yield "namesrv", "" if held else f"no name server of {wanted} has it in its routes"
    yield from node.replication.checks()


def writable_check(store: FileMessageStore) -> Check:
    """Check whether a master's or leader's store takes writes."""
    writable = store.statistics().writable
    return "writable", "" if writable else "the store refuses writes; see the journal"
