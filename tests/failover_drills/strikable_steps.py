"""The steps at which `strikable` can strike a member, in the order in which they come."""

from __future__ import annotations

STRUCK_SUFFIX = ".struck"
TARGET_STEPS = (
    "before failover ticket",
    "after failover ticket",
    "before promote",
    "before epochs",
    "after epochs",
    "after role",
    "before register",
    "after register",
)
"""The member that is promoted takes these steps. It answers PROMOTE before the last two."""
MASTER_STEPS = (
    "before failover ticket",
    "after failover ticket",
    "before pause writes",
    "after pause writes",
    "before hand over",
    "after hand over",
    "before follow",
    "after follow",
)
"""The master takes these steps in a planned switch."""
OTHER_STEPS = ("before failover ticket", "after failover ticket", "before follow", "after follow")
"""Every other member takes these steps."""
