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
"""Of the member that is promoted. The answer to PROMOTE leaves between the last two but one."""
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
"""Of the master of a planned switch."""
OTHER_STEPS = ("before failover ticket", "after failover ticket", "before follow", "after follow")
"""Of every other member."""
