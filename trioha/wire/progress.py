"""Work done on a request that takes several turns. Not compiled: handlers of packages that are
not compiled inherit from it, which a compiled class does not allow."""

from __future__ import annotations


class Progress:
    """Work that the handler of a request did in earlier turns (`Channel.go_on_nowait`)."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        """Memory that it takes besides the request's body."""
