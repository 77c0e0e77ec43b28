"""The check before operators' changes at a node with a cluster secret and without accounts."""

from __future__ import annotations

from trioha.remoting.channel import Handler
from trioha.remoting.node_proofs import NodeProofs
from trioha.security.requirements import Port, requirement_of


class SecretGuard:
    """Asks for proof of the secret, as handlers of nodes do by themselves; of nothing else."""

    def __init__(self, port: Port, proofs: NodeProofs) -> None:
        self._port = port
        self._proofs = proofs

    def guarded(self, code: int, handler: Handler) -> Handler:
        """Return the handler behind its check, or the handler itself if it changes nothing."""
        if not requirement_of(self._port, code).changes:
            return handler
        return self._proofs.guarded({code: handler})[code]
