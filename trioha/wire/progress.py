"""What is done of a request that takes several turns. Not compiled: handlers of packages that are
not compiled inherit from it, which a compiled class does not allow."""

from __future__ import annotations


class Progress:
    """What the handler of a request has done of it in earlier turns (`Channel.go_on_nowait`)."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        """Memory that it takes besides the request's body."""
