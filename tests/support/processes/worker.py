"""A thread beside a test: it works until it is stopped, and what ends it early fails the test."""

from __future__ import annotations

import threading
from typing import Self


class Worker:
    """Subclasses say in `_work` what is done until `_stopping` is set."""

    def __init__(self, name: str, join_s: float = 60.0) -> None:
        """`join_s`: a worker that has not ended so long after `stop` hangs."""
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._join_s = join_s
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> Self:
        self._thread.start()
        return self

    def ask_to_stop(self) -> None:
        self._stopping.set()

    def stop(self) -> None:
        """Errors: AssertionError when it hangs; whatever ended it early."""
        self.ask_to_stop()
        self._thread.join(self._join_s)
        assert not self._thread.is_alive(), f"{self._thread.name} hangs"
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        raise NotImplementedError

    def _ended(self) -> None:
        """The work is over, whatever ended it."""

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._failure = error
        finally:
            self._ended()
