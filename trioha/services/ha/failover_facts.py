"""Facts of a master-slave node for an operator who fails its broker over."""

from __future__ import annotations

from trioha.broker.failover import Facts
from trioha.config import BrokerRole
from trioha.services.ha.views import ToldNode


class FailoverFacts:
    """Implements `trioha.broker.failover.FailoverNode`."""

    def __init__(self, node: ToldNode) -> None:
        self._node = node

    @property
    def log_end(self) -> int:
        return self._node.store.max_phy_offset

    @property
    def metadata_position(self) -> int:
        node = self._node
        if node.role is not BrokerRole.SLAVE:
            return node.core.metadata.position_of_changes
        return node.ha_client.metadata_position if node.ha_client is not None else -1

    def facts(self) -> Facts:
        return {
            **self._node.mastership.facts(self.log_end),
            "max_phy_offset": self.log_end,
            "metadata_position": self.metadata_position,
            "puts_parked": self._node.gate.parked_count,
        }

    def target_holds(self, log_offset: int, metadata_position: int) -> None:
        node = self._node
        node.replicas.count_acknowledged(
            min(log_offset, self.log_end), min(metadata_position, self.metadata_position)
        )
        node.slave_reported(node.clock.now_ms())
