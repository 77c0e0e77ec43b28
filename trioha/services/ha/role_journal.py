"""Tells the journal of a node's role, and of the terms that it begins, promises or loses."""

from __future__ import annotations

from trioha.ha import role_effects as effects
from trioha.journal import EventSink
from trioha.services.ha.views import RoleNode

JournalEffect = (
    effects.TermBegun
    | effects.Fenced
    | effects.Promised
    | effects.Confirmed
    | effects.PromotionFailed
)


def tell_role(node: RoleNode, events: EventSink) -> None:
    """Report the role. A caller that reports no change passes other `events` than the node's."""
    events.event(
        "role",
        role=node.role.value,
        broker_id=node.broker_id,
        heartbeat_interval_ms=node.config.ha_send_heartbeat_interval,
        heartbeat_limit_ms=node.config.ha_housekeeping_interval,
    )


def tell_effect(events: EventSink, effect: JournalEffect) -> None:
    """Report an effect of the role machine that is for the journal."""
    match effect:
        case effects.TermBegun(record):
            events.event(
                "epoch_began",
                epoch=record.epoch,
                start_offset=record.start_offset,
                sync=record.sync,
            )
        case effects.Fenced(epoch, reason):
            events.event("fenced", epoch=epoch, reason=reason)
        case effects.Promised(epoch):
            events.event("promised", epoch=epoch)
        case effects.Confirmed(epoch, reason):
            events.event("confirmed", epoch=epoch, reason=reason)
        case effects.PromotionFailed(epoch, reason):
            events.event("promotion_failed", epoch=epoch, reason=reason)
