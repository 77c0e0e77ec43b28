"""A job of Spark's while it runs: its progress, its end by Ctrl-C, its errors as sentences.

Spark's status tracker is the one place where Spark tells how far its tasks are, and it has to be
asked: a thread does so until the job is over.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs
from pyspark.errors import PySparkException

from trioha.analysis.engine import Progress
from trioha.analysis.schema import AnalysisError
from trioha.analysis.spark.session import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from trioha.analysis.spill import Task

_LOOK_INTERVAL_S = 0.25
_IDLE_LIMIT_S = 20.0
"""Time without a running task after which the user is told that no worker took one."""
_OUR_SENTENCE = re.compile(r"AnalysisError: (.+)")


@attrs.frozen
class Jobs:
    """Jobs of one session.

    Errors: AnalysisError, one sentence, from the blocks: what Spark refuses, a task that fails.
    """

    session: SparkSession
    note: Callable[[str], None]
    """Takes a sentence for the user."""

    @contextlib.contextmanager
    def watched(self, what: str, progress: Progress, sql: str = "") -> Iterator[None]:
        """Show the progress of this thread's jobs until the block is left."""
        context = self.session.sparkContext
        group = f"trioha-{threading.get_ident()}-{id(what)}"
        context.setJobGroup(group, what, interruptOnCancel=True)
        over = threading.Event()
        watcher = threading.Thread(
            target=self._watch, args=(group, what, progress, over), daemon=True
        )
        progress.begin(what, 0, "tasks")
        watcher.start()
        try:
            with _explained(sql or what):
                yield
        except KeyboardInterrupt:
            with contextlib.suppress(Exception):
                context.cancelJobGroup(group)
            raise
        finally:
            over.set()
            watcher.join()
            progress.end()

    def run_tasks(self, what: str, tasks: Sequence[Task], progress: Progress) -> None:
        """Decode on the workers, which must see the tasks' directory: a task for each."""
        if tasks:
            with self.watched(f"spark: {what}", progress):
                self.session.sparkContext.parallelize(list(tasks), len(tasks)).foreach(_run)

    def _watch(self, group: str, what: str, progress: Progress, over: threading.Event) -> None:
        tracker = self.session.sparkContext.statusTracker()
        shown = idle_s = 0
        # Not ideal: Spark does not report the end of a task, so it has to be asked.
        while not over.wait(_LOOK_INTERVAL_S):
            try:
                done, active, total = _tasks(tracker, group)
            except Exception:  # the session is ending: the waiting query gets the error
                return
            progress.resize(total)
            progress.advance(done - shown)
            shown = done
            idle_s = 0 if active or done == total else idle_s + 1
            if idle_s * _LOOK_INTERVAL_S == _IDLE_LIMIT_S:
                self.note(
                    f"no worker took a task for {_IDLE_LIMIT_S:.0f} s: are workers registered with"
                    " the master, with free cores and memory?"
                )
                progress.begin(f"{what}: waiting for workers", total, "tasks")


def _run(task: Task) -> None:
    task.run()


def _tasks(tracker: Any, group: str) -> tuple[int, int, int]:
    """Tasks done, running, and known of, in all jobs of a group."""
    done = active = total = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info is not None else ():
            tasks = tracker.getStageInfo(stage)
            if tasks is not None:
                done += tasks.numCompletedTasks
                active += tasks.numActiveTasks
                total += tasks.numTasks
    return done, active, total


@contextlib.contextmanager
def _explained(sql: str) -> Iterator[None]:
    try:
        yield
    except PySparkException as error:
        raise _sentence(error, sql) from error
    except Exception as error:
        if type(error).__module__.startswith("py4j"):
            raise _sentence(error, sql) from error
        raise


def _sentence(error: Exception, sql: str) -> AnalysisError:
    ours = _OUR_SENTENCE.search(str(error))
    if ours is not None:
        return AnalysisError(ours[1].strip())
    return AnalysisError(f"Spark: {first_line(error)} ({' '.join(sql.split())[:200]})")
