"""The check before operators' changes at a node with a cluster secret and without accounts."""

from __future__ import annotations

from trioha.journal import EventSink
from trioha.remoting.channel import Channel, Handler
from trioha.remoting.node_proofs import NodeProofs
from trioha.security.audit import audited
from trioha.security.requirements import Port, requirement_of
from trioha.wire.remoting_command import RemotingCommand


class SecretGuard:
    """Asks for proof of the secret, as handlers of nodes do by themselves; of nothing else."""

    def __init__(self, port: Port, proofs: NodeProofs, events: EventSink) -> None:
        self._port = port
        self._proofs = proofs
        self._events = events

    def guarded(self, code: int, handler: Handler) -> Handler:
        """Return the handler behind its check, or the handler itself if it changes nothing."""
        requirement = requirement_of(self._port, code)
        if requirement.audited:
            handler = audited(code, handler, _nobody, self._events)
        if not requirement.changes:
            return handler
        return self._proofs.guarded({code: handler})[code]


def _nobody(channel: Channel, request: RemotingCommand) -> str:
    """Return no account: a secret says nothing of who knows it."""
    return ""
