"""Ring 4: who may become master, what that would cost, and the steps to it. Values only."""
