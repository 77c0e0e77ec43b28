"""Views and screens that the first screen does not need; they are imported later.

Imports take most of the time to the first screen. Many modules serve screens that may never be
opened: the failover engine, an operator's jobs, the past of a group. So the program imports other
views and screens in the functions that open them. Once the first screen is drawn, `import_later`
imports all of them in another thread, so that a key waits for no import either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

from trioha.watch.alerts import Alerts
from trioha_console.other_clusters import OpenContext
from trioha_console.source import Source
from trioha_console.views.replication import ReplicationView
from trioha_console.views.view import View

VIEWS: Mapping[str, str] = {
    "replication": "Replication",
    "brokers": "Brokers",
    "topics": "Topics",
    "queues": "Queues",
    "groups": "Groups",
    "messages": "Messages",
    "alerts": "Alerts",
}
"""Name and title of each view, in the order of their keys from 1."""
CLUSTERS = "clusters"
"""The view of key 0."""
TITLES: Mapping[str, str] = {**VIEWS, CLUSTERS: "Clusters"}
"""Name and title of every view."""
_LATER = (
    *(f"views.{name}" for name in TITLES),
    *(f"screens.{name}" for name in ("help", "node", "group", "operation", "failover", "transfer")),
    "operation_lines",
)


def make_view(
    name: str, source: Callable[[], Source], alerts: Alerts, open_other: OpenContext
) -> View:
    """Return a new view of this name. Errors: KeyError."""
    match name:
        case "replication":
            return ReplicationView()
        case "brokers":
            from trioha_console.views.brokers import BrokersView

            return BrokersView()
        case "topics":
            from trioha_console.views.topics import TopicsView

            return TopicsView()
        case "queues":
            from trioha_console.views.queues import QueuesView

            return QueuesView()
        case "groups":
            from trioha_console.views.groups import GroupsView

            return GroupsView()
        case "messages":
            from trioha_console.views.messages import MessagesView

            return MessagesView(source)
        case "alerts":
            from trioha_console.views.alerts import AlertsView

            return AlertsView(alerts)
        case "clusters":
            from trioha_console.views.clusters import ClustersView

            return ClustersView(open_other, alerts)
        case _:
            raise KeyError(name)


def import_later() -> None:
    """Import everything that is opened later. Thread: any."""
    for name in _LATER:
        import_module(f"trioha_console.{name}")
