"""Faults put back in: the ones that DLedger shipped, and those that Raft is usually got wrong with.

Each is a change of one line of the core, made while it is imported by a process of its own:

    python tests/sim/raft/mutants.py NAME [SEEDS]

lives through the seed that is known to show the fault, then through all from 0 on, until the judge
or an assertion of the core objects, and prints the seed and the objection. Nothing else counts: a
mutant that cannot be imported, that breaks the simulation, or whose words other members reject, has
not been noticed. A mutant that another seed shows than the one that is known has moved.

docs/known-faults.md explains the faults by number.
"""

from __future__ import annotations

import sys
import traceback
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType
from typing import Any

import attrs

SEEDS_MAX = 2000


@attrs.frozen
class Mutant:
    """One line that is wrong."""

    name: str
    module: str
    """Module below trioha.dledger."""
    right: str
    wrong: str
    why: str
    """The fault, and where it was seen."""
    seed: int
    """The first seed that shows it."""


MUTANTS = (
    Mutant(
        "commits-older-terms-by-counting",
        "leadership",
        "if held <= max(state.committed_offset, self.term_start_offset):",
        "if held <= state.committed_offset:",
        "fault S1: Raft's Figure 8; what DLedger 0.3 ships",
        0,
    ),
    Mutant(
        "leader-counts-what-it-has-not-fsynced",
        "leadership",
        "state.held_offset if voter == state.member_id",
        "state.end_offset if voter == state.member_id",
        "fault S6: the leader's own copy is in the page cache only",
        1,
    ),
    Mutant(
        "follower-acknowledges-before-fsync",
        "entry_handler",
        "return min(self._state.held_offset, self._state.matched_offset)",
        "return self._state.matched_offset",
        "fault S6: what DLedger ships, 10 ms before the flush",
        0,
    ),
    Mutant(
        "keeps-a-second-end-for-votes",
        "member_state",
        "        self.held_offset = min(self.held_offset, phy_offset)\n",
        "",
        "fault S3: after a cut it still votes with, and acknowledges, what it no longer has",
        4,
    ),
    Mutant(
        "obeys-a-deposed-leader",
        "node",
        "            self._answer_stale(message)\n            return\n",
        "            if isinstance(message, say.Append) and self._leadership is None:\n"
        "                self._handler.on_append(message)\n            return\n",
        "faults S4 and A3: a delayed push of an older term is carried out",
        74,
    ),
    Mutant(
        "shorter-append-cuts",
        "entry_handler",
        "        if run_end >= end:\n            return end\n",
        "        if run_end >= end:\n            state.truncate(end)\n            return end\n",
        "an overtaken APPEND takes off what came after it",
        0,
    ),
    Mutant(
        "vote-is-not-saved",
        "member_state",
        "return HardState(self.term, self.voted_for,",
        "return HardState(self.term, '',",
        "fault S7: a vote is given that a crash forgets",
        517,
    ),
    Mutant(
        "own-vote-is-not-saved",
        "member_state",
        "        self.voted_for = self.member_id\n",
        "        self.voted_for = ''\n",
        "fault S7: a candidate that restarts votes for another in the same term",
        254,
    ),
    Mutant(
        "commits-what-was-not-compared",
        "entry_handler",
        "state.commit(min(heartbeat.committed_offset, state.matched_offset))",
        "state.commit(min(heartbeat.committed_offset, state.end_offset))",
        "faults S8 and A6: the leader's commit trusted past the verified prefix",
        4,
    ),
    Mutant(
        "votes-for-shorter-logs",
        "leader_elector",
        "return (request.log_term, request.log_end) < (state.held_term, state.held_offset)",
        "return request.log_term < state.held_term",
        "the length is not compared",
        26,
    ),
    Mutant(
        "votes-by-length-alone",
        "leader_elector",
        "return (request.log_term, request.log_end) < (state.held_term, state.held_offset)",
        "return request.log_end < state.held_offset",
        "a long log of an old term beats a short one of a new term",
        4,
    ),
    Mutant(
        "claims-the-term-it-is-in",
        "leader_elector",
        "                        state.held_term,\n",
        "                        state.term,\n",
        "fault A4: the last term taken from the current one; a lagging member wins",
        16,
    ),
    Mutant(
        "votes-twice",
        "leader_elector",
        "free = not state.voted_for and not state.leader_id",
        "free = True",
        "one vote per term, forgotten",
        5,
    ),
    Mutant(
        "never-forgets-a-vote",
        "member_state",
        '            self.term, self.voted_for = term, ""\n',
        "            self.term = term\n",
        "a vote of an older term counts in the new one: nobody can be elected",
        2,
    ),
    Mutant(
        "counts-would-as-does",
        "leader_elector",
        "        if state.role is not wanted:\n            return False\n"
        "        if response.granted and response.term != state.term + response.is_pre:\n",
        "        if state.role not in (Role.PRE_CANDIDATE, Role.CANDIDATE):\n",
        "a late answer to a pre-vote is counted as a vote",
        337,
    ),
    Mutant(
        "half-is-a-majority",
        "quorum",
        "return count // 2 + 1",
        "return (count + 1) // 2",
        "two halves of four, two leaders",
        107,
    ),
    Mutant(
        "leader-is-deaf-to-newer-terms",
        "node",
        "        leader_id = message.source if isinstance(message, _FROM_LEADER)",
        "        if self._leadership is not None:\n            return False\n"
        "        leader_id = message.source if isinstance(message, _FROM_LEADER)",
        "fault B1: a member in a newer term never rejoins",
        74,
    ),
    Mutant(
        "lost-pushes-stay-lost",
        "entry_dispatcher",
        "if since is not None and self._state.now_ms - since >= self._state.settings.retry_ms:",
        "if since is not None and since < 0:",
        "faults P4 and B2: nobody asks again",
        12,
    ),
    Mutant(
        "gaps-are-ignored",
        "entry_handler",
        "self._answer(append, _APPEND, _GAP)",
        "self._matched(append.prev_offset)",
        "a packet that overtook another is taken for granted",
        0,
    ),
    Mutant(
        "bytes-wait-for-spares-for-ever",
        "leadership",
        "if self._push_due_ms == _NEVER and dispatcher.owes_push:",
        "if self._push_due_ms == _NEVER and dispatcher.owes_commit:",
        "what is held back is pushed with a later commit only",
        1,
    ),
    Mutant(
        "tells-of-fsyncs-only-when-uncommitted",
        "entry_handler",
        "        if state.leader_id:\n            state.messages",
        "        if state.leader_id and state.matched_offset > state.committed_offset:\n"
        "            state.messages",
        "ours, seed 273: a follower far behind catches up at a heartbeat's pace",
        232,
    ),
    Mutant(
        "old-fsync-counts-for-new-bytes",
        "member_state",
        "if cut_count != self.cut_count or held <= self.held_offset:",
        "if held <= self.held_offset:",
        "an fsync that began before a cut is taken for one of what was written since",
        301,
    ),
    Mutant(
        "batch-crosses-terms",
        "entry_dispatcher",
        "body = read[: state.terms.run_end(start, end_offset) - start]",
        "body = read",
        "bytes of two terms are sent as of one",
        7,
    ),
    Mutant(
        "matched-survives-the-leader",
        "member_state",
        "            self.matched_offset = self.committed_offset\n            self.hard",
        "            self.hard",
        "what one leader proved is believed of the next",
        167,
    ),
    Mutant(
        "configuration-outlives-its-record",
        "member_state",
        "        self.configurations = self.configurations.cut(phy_offset)\n",
        "",
        "a log that is cut keeps the members of the part that went",
        42,
    ),
    Mutant(
        "followers-ignore-configurations",
        "entry_handler",
        "            for row in configurations:\n",
        "            for row in ():\n",
        "only the leader knows who votes",
        12,
    ),
    Mutant(
        "learners-count",
        "leadership",
        ".held_offset\n            for voter in state.configuration.voters\n",
        ".held_offset\n            for voter in state.configuration.members\n",
        "a majority of members is no majority of voters",
        13,
    ),
    Mutant(
        "learners-keep-the-lease",
        "leadership",
        "value(self.dispatchers[voter])\n            for voter in state.configuration.voters\n",
        "value(self.dispatchers[voter])\n            for voter in state.configuration.members\n",
        "a majority that may not vote promised nothing",
        888,
    ),
    Mutant(
        "whoever-forgot-votes",
        "leader_elector",
        "        if state.impaired:\n",
        "        if False:\n",
        "fault S9: a wiped or damaged member votes, and the new leader lacks acknowledged puts",
        239,
    ),
    Mutant(
        "lease-from-the-answer",
        "entry_dispatcher",
        "self.echoed_ms = max(self.echoed_ms, response.sent_ms)",
        "self.echoed_ms = self._state.now_ms",
        "fault S11: a lease that counts from when the answer came",
        518,
    ),
    Mutant(
        "lease-longer-than-the-timeout",
        "settings",
        "return self.promise_ms * (100 - self.lease_drift_percent) // 100",
        "return self.election_timeout_max_ms * 2",
        "fault S11: an isolated leader serves stale reads, 6 to 9 s in DLedger",
        12,
    ),
    Mutant(
        "voters-ignore-the-lease",
        "leader_elector",
        "return not request.by_transfer and self._state.hears_leader",
        "return False",
        "somebody is elected while the old leader still holds a lease",
        74,
    ),
    Mutant(
        "lost-connections-end-the-promise",
        "member_state",
        "return self.now_ms - self.promised_ms < self.settings.promise_ms",
        "return False",
        "connections of a leader that lives were reset, and its lease still runs",
        74,
    ),
    Mutant(
        "lease-from-before-early-elections",
        "settings",
        "return self.promise_ms * (100 - self.lease_drift_percent) // 100",
        "return self.election_timeout_min_ms * (100 - self.lease_drift_percent) // 100",
        "voters that lost the leader wait for less than its lease",
        12,
    ),
    Mutant(
        "promise-from-any-message",
        "entry_handler",
        "        state.promised_ms = state.now_ms  # our answer lengthens the leader's lease\n",
        "",
        "the promise counts from the start of the process: it is over long before the lease",
        12,
    ),
    Mutant(
        "reads-without-asking-anybody",
        "leadership",
        "        elif self.has_lease:\n",
        "        elif True:\n",
        "fault S11: DLedger's GET",
        14,
    ),
    Mutant(
        "reads-before-the-term-is-open",
        "leadership",
        "if not self.is_serving or len(self._reads) >= READS_MAX:",
        "if len(self._reads) >= READS_MAX:",
        "a new leader does not know yet what is committed",
        0,
    ),
    Mutant(
        "leaderless-members-answer",
        "answering",
        "RequestKind.PRESENT: _modes(Mode.CONFIRM, Mode.FORWARD, Mode.PARK, Mode.REJECT),",
        "RequestKind.PRESENT: _modes(Mode.CONFIRM, Mode.FORWARD, Mode.PARK, Mode.SERVE),",
        "ours: four seconds after its cut a deposed leader answered offsets as they were before it",
        0,
    ),
    Mutant(
        "followers-answer",
        "answering",
        "RequestKind.PRESENT: _modes(Mode.CONFIRM, Mode.FORWARD, Mode.PARK, Mode.REJECT),",
        "RequestKind.PRESENT: _modes(Mode.CONFIRM, Mode.SERVE, Mode.PARK, Mode.REJECT),",
        "ours: one of six answers about the end of a queue was below an acknowledged one",
        0,
    ),
    Mutant(
        "leaders-answer-without-leave",
        "answering",
        "RequestKind.PRESENT: _modes(Mode.CONFIRM, Mode.FORWARD, Mode.PARK, Mode.REJECT),",
        "RequestKind.PRESENT: _modes(Mode.SERVE, Mode.FORWARD, Mode.PARK, Mode.REJECT),",
        "fault S11: a leader that was cut off believes itself",
        62,
    ),
    Mutant(
        "installs-on-any-conflict",
        "entry_handler",
        "        if common < compare.begin_offset:\n",
        "        if common < compare.end_offset and compare.begin_offset:\n",
        "a log is emptied that shares bytes with the leader's",
        12,
    ),
)


class _Loader(SourceFileLoader):
    mutant: Mutant

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_data(self.path).decode()
        count = source.count(self.mutant.right)
        assert count == 1, f"{self.mutant.name}: its line is {count} times in {self.path}"
        wrong = source.replace(self.mutant.right, self.mutant.wrong)
        return compile(wrong, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    """Finds the product's modules as sources, also where they are compiled, and spoils one.

    A compiled module takes no objects of a class that is not.
    """

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if not fullname.startswith("trioha."):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None or spec.submodule_search_locations is not None:
            return spec
        source = Path(spec.origin).with_name(fullname.rpartition(".")[2] + ".py")
        loader = SourceFileLoader(fullname, str(source))
        if fullname == f"trioha.dledger.{self._mutant.module}":
            loader = _Loader(fullname, str(source))
            loader.mutant = self._mutant
        return spec_from_file_location(fullname, source, loader=loader)


NOTICED, SURVIVED, BROKEN, MOVED = range(4)


def main(name: str, seeds: int) -> int:
    """Return NOTICED, MOVED (by another seed), SURVIVED (all seeds), or BROKEN (an exception)."""
    mutant = next(one for one in MUTANTS if one.name == name)
    sys.meta_path.insert(0, _Finder(mutant))
    try:
        from trioha.sim.raft.simulation import run_seed

        for seed in (mutant.seed, *range(seeds)):
            verdict = run_seed(seed)
            if verdict.is_judged:
                print(f"{seed}\t{verdict.failure}")
                return NOTICED if seed == mutant.seed else MOVED
    except Exception:
        traceback.print_exc()
        return BROKEN
    return SURVIVED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else SEEDS_MAX))
