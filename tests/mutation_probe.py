"""Small faults put into the sources one by one: the tests beside each have to notice it.

    python tests/mutation_probe.py [--list] [-k NAME]

Works in a copy of the tree, never in the checkout. First the tests named below have to pass as the
sources are. Then each fault is written into the copy, its tests are run, and the fault is taken out
again. Five things can become of a fault:

    noticed     a test failed
    SURVIVED    every test passed: a test is missing
    BROKEN      the module cannot be imported, or tests could not be collected or set up
    NO TEST     pytest found no test to run
    HUNG        no end within the limit; which test noticed what cannot be told

Only the first counts: the exit status is 0 if every fault was noticed and 1 otherwise. A fault
whose line is not in its file exactly once is an error (exit status 2): the list has to follow the
sources.
"""

from __future__ import annotations

import argparse
import enum
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

import attrs

REPO = Path(__file__).parents[1]
LIMIT_S = 120.0
"""Limit for the tests of one fault; they take a second or two each. All at once take longer."""
ALL_LIMIT_S = 600.0
_NOT_COPIED = (
    *(".git", ".venv", "__pycache__", "node_modules", "*.so", "compiled_sources.json", "build"),
    *("dist", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".import_linter_cache"),
)


class Verdict(enum.Enum):
    NOTICED = "noticed"
    SURVIVED = "SURVIVED"
    BROKEN = "BROKEN"
    NO_TEST = "NO TEST"
    HUNG = "HUNG"


@attrs.frozen
class Mutation:
    """One fault: a piece of source that is there once, what replaces it, and which tests notice."""

    name: str
    file: str
    """Below the tree's root."""
    before: str
    after: str
    tests: tuple[str, ...]
    why: str
    """Consequence for users of the broker."""


class Rotten(Exception):
    """The list no longer fits the sources. The text says where."""


MUTATIONS = (
    # wire
    Mutation(
        "checksum-keeps-its-top-bit",
        "trioha/wire/record.py",
        "return crc32(body) & 0x7FFFFFFF",
        "return crc32(body) & 0xFFFFFFFF",
        ("tests/wire/test_golden.py",),
        "half of all records are damaged in the eyes of RocketMQ",
    ),
    Mutation(
        "frame-may-be-longer-than-it-says",
        "trioha/wire/remoting_command.py",
        "    if total + 4 != size:\n",
        "    if total + 4 > size:\n",
        ("tests/wire/test_remoting_command.py",),
        "bytes behind a frame are taken for its body",
    ),
    Mutation(
        "index-hash-of-the-smallest-integer",
        "trioha/wire/java_hash.py",
        "return (0x100000000 - value) & 0x7FFFFFFF",
        "return 0x100000000 - value",
        ("tests/wire/test_java_hash.py",),
        "the one number without an absolute value is beyond every index file",
    ),
    # store
    Mutation(
        "filed-record-is-filed-again",
        "trioha/store/dispatcher.py",
        "self.offset + size > queue.max_phy_offset:",
        "self.offset + size >= queue.max_phy_offset:",
        ("tests/store/test_message_store.py",),
        "the disk full between two queues: the retry gives the last record a second entry",
    ),
    Mutation(
        "pull-stays-below-its-limit",
        "trioha/store/lookup.py",
        "total + size > memory_bytes_max",
        "total + size >= memory_bytes_max",
        ("tests/store/test_lookup.py",),
        "the record that fills a pull exactly is left out",
    ),
    Mutation(
        "checkpoint-of-java-is-not-noticed",
        "trioha/store/checkpoint.py",
        " and tuple(values[:3]) == java:",
        ":",
        ("tests/store/test_checkpoint.py",),
        "a recovery point is believed that RocketMQ has since written beyond",
    ),
    Mutation(
        "truncated-queue-keeps-an-entry",
        "trioha/store/consume_queue.py",
        "self.min_index, self.next_index, lambda offset, size: offset < phy_offset\n",
        "self.min_index, self.next_index, lambda offset, size: offset <= phy_offset\n",
        ("tests/store/test_consume_queue.py", "tests/store/test_recovery.py"),
        "a queue lists a record that was cut off",
    ),
    Mutation(
        "readers-see-what-nobody-promised",
        "trioha/store/lookup.py",
        "lambda phy_offset, size: phy_offset + size <= readable)",
        "lambda phy_offset, size: phy_offset <= readable)",
        ("tests/broker/test_visibility.py",),
        "a consumer reads a record that may be taken back",
    ),
    # ha
    Mutation(
        "anothers-term-of-the-same-nonce-is-ours",
        "trioha/ha/mastership.py",
        '                own_nonce = b"" if newest.nonce == own_nonce else own_nonce\n',
        "                pass\n",
        ("tests/ha/test_mastership.py",),
        "a forged ticket makes two nodes masters of one term, and ends one that follows",
    ),
    Mutation(
        "waiter-needs-one-byte-more",
        "trioha/ha/group_commit.py",
        "while waiting and waiting[0][0] <= offset:",
        "while waiting and waiting[0][0] < offset:",
        ("tests/ha/test_group_commit.py",),
        "a put is not released by the acknowledgement of its last byte",
    ),
    Mutation(
        "epochs-of-one-number-are-one",
        "trioha/ha/epochs.py",
        "if other is None or theirs.records[other] != record:",
        "if other is None or theirs.records[other].start_offset != record.start_offset:",
        ("tests/ha/test_epochs.py",),
        "two operators promote two slaves under one number: their logs are taken for one",
    ),
    Mutation(
        "promise-counts-for-another-candidate",
        "trioha/ha/candidacy.py",
        "if answer is not None and answer.promised == (term.epoch, term.nonce)\n",
        "if answer is not None and answer.promised[0] == term.epoch\n",
        ("tests/ha/test_candidacy.py",),
        "two candidates of one number both count the same promise: two masters",
    ),
    Mutation(
        "term-of-one-number-is-one",
        "trioha/ha/mastership.py",
        "return self._kept.promised_epoch != epoch or nonce == promised_nonce",
        "return True",
        ("tests/ha/test_mastership.py",),
        "a slave follows a master to whom it has not promised the term",
    ),
    Mutation(
        "hello-follows-whoever-has-the-number",
        "trioha/ha/hello.py",
        'return ours.promised_nonce in (b"", term.nonce)',
        "return True",
        ("tests/ha/test_hello.py",),
        "a slave that promised a term to one node copies the log of another",
    ),
    Mutation(
        "number-without-a-nonce-is-a-term",
        "trioha/ha/mastership.py",
        "if not newer or not nonce or epoch < self.known_epoch",
        "if not newer or epoch < self.known_epoch",
        ("tests/ha/test_mastership.py",),
        "a slave that a stranger told a number refuses its master for ever",
    ),
    Mutation(
        "returning-master-overlooks-its-twin",
        "trioha/ha/confirmation.py",
        'is_other = word.known[1] not in (b"", node.nonce)',
        "is_other = False",
        ("tests/ha/test_confirmation.py",),
        "a master that comes back serves beside another one of its number",
    ),
    Mutation(
        "slave-may-acknowledge-anything",
        "trioha/ha/master_connection.py",
        "        if offset > self.next_transfer_offset:\n",
        "        if offset > max_phy_offset:\n",
        ("tests/ha/test_master_connection.py",),
        "bytes count as replicated that were never sent",
    ),
    Mutation(
        "stall-is-forgiven-for-ever",
        "trioha/ha/replicas.py",
        "STALL_MIN_MS: Final = 900 ",
        "STALL_MIN_MS: Final = 9000 ",
        ("tests/ha/test_replicas.py",),
        "producers wait for a slave that has stopped",
    ),
    Mutation(
        "term-begins-without-its-promises",
        "trioha/ha/quorum.py",
        "MISSING_MAX = 1\n",
        "MISSING_MAX = 2\n",
        ("tests/ha/test_quorum.py",),
        "a new master lacks what two members acknowledged that it never heard of",
    ),
    Mutation(
        "term-takes-the-number-of-the-one-before",
        "trioha/ha/quorum.py",
        "    if not silent:\n        return newest + 1\n",
        "    if not silent:\n        return newest\n",
        ("tests/ha/test_quorum.py", "tests/failover/test_plan.py"),
        "two masters under one number",
    ),
    Mutation(
        "set-of-three-shows-what-no-slave-holds",
        "trioha/ha/readers.py",
        "OTHERS_MIN: Final = 2\n",
        "OTHERS_MIN: Final = 3\n",
        ("tests/ha/test_readers.py",),
        "consumers skip messages of the next master",
    ),
    # broker
    Mutation(
        "old-acknowledgement-proves-the-present",
        "trioha/broker/present_reads.py",
        "self._questions.add(self._metadata.mark(), deadline_ms, question)",
        "self._questions.add(self._metadata.position, deadline_ms, question)",
        ("tests/broker/test_present_reads.py",),
        "a master that was replaced tells an old offset",
    ),
    Mutation(
        "answer-of-an-older-term-leaves",
        "trioha/broker/present_reads.py",
        "            if question.term == term:\n",
        "            if question.term:\n",
        ("tests/broker/test_present_reads.py",),
        "a master that was a slave meanwhile tells an old offset",
    ),
    Mutation(
        "reader-of-what-is-held-back-is-sent-back",
        "trioha/store/lookup.py",
        "            if high < offset <= queue.next_index:\n",
        "            if high < offset < queue.next_index:\n",
        ("tests/broker/test_visibility.py",),
        "consumers read messages again after their master has started again",
    ),
    Mutation(
        "put-waits-for-what-is-there",
        "trioha/broker/put_message.py",
        "if outcome.wait_slave and self._replicas.push2slave_max_offset < need:",
        "if outcome.wait_slave and self._replicas.push2slave_max_offset <= need:",
        ("tests/broker/test_put_message.py",),
        "a message that is on the slave already waits for the next acknowledgement",
    ),
    Mutation(
        "group-never-commits-its-beginning",
        "trioha/broker/offsets.py",
        "        if offset < 0:\n            return\n        if self.read_only:",
        "        if offset <= 0:\n            return\n        if self.read_only:",
        ("tests/broker/test_offsets.py",),
        "a group cannot be rewound to the start of a queue",
    ),
    Mutation(
        "pull-is-woken-by-nothing-new",
        "trioha/broker/pull_hold.py",
        "for pull in [pull for pull in pulls if max_offset > pull.offset]:",
        "for pull in [pull for pull in pulls if max_offset >= pull.offset]:",
        ("tests/broker/test_pull_hold.py",),
        "a parked pull is answered empty, and its client asks again at once",
    ),
    Mutation(
        "last-queue-and-one-more",
        "trioha/broker/send_check.py",
        "        if header.queue_id >= queues:\n",
        "        if header.queue_id > queues:\n",
        ("tests/broker/test_send.py",),
        "a send makes a queue that no consumer reads",
    ),
    Mutation(
        "lock-outlives-its-end",
        "trioha/broker/locks.py",
        "            if lock.expires_ms > now_ms:\n                return False\n",
        "            if lock.expires_ms >= now_ms:\n                return False\n",
        ("tests/broker/test_locks.py",),
        "a queue of a dead orderly consumer is locked at the moment when its lock has ended",
    ),
    # namesrv
    Mutation(
        "second-claim-of-one-number-wins",
        "trioha/namesrv/masterships.py",
        "claim.epoch == newest.epoch and claim.nonce != newest.nonce\n",
        "claim.epoch == newest.epoch and claim.address == newest.address\n",
        ("tests/namesrv/test_masterships.py",),
        "two masters of one name, both of which the name server believes",
    ),
    Mutation(
        "anybody-unregisters-a-broker",
        "trioha/namesrv/route_info.py",
        "        if live is None or live.broker != broker:\n            return False\n",
        "        if live is None:\n            return False\n",
        ("tests/namesrv/test_route_info.py",),
        "a late goodbye takes a broker that has changed its role out of the routes",
    ),
    Mutation(
        "progress-is-told-before-it-is-safe",
        "trioha/broker/present_reads.py",
        "            if request.code != RequestCode.QUERY_CONSUMER_OFFSET:\n",
        "            if True:\n",
        ("tests/broker/test_present_reads.py",),
        "a failover takes a group back behind what the master had told of it",
    ),
    Mutation(
        "a-fenced-master-waits-half-a-minute",
        "trioha/services/node/namesrv_registration.py",
        "(identity.broker_id != 0 or identity.in_doubt)",
        "(identity.broker_id != 0)",
        ("tests/services/node/test_namesrv_registration.py",),
        "the new master has no slave until the old one registers again",
    ),
    # dledger
    Mutation(
        "members-of-control-records-unread",
        "trioha/broker/raft/foreign_bytes.py",
        "                        found.append((at + size, configuration))\n",
        "                        pass\n",
        ("tests/broker/raft/test_foreign_bytes.py",),
        "a follower does not know of new members before its next start, and counts other votes",
    ),
    Mutation(
        "a-silent-leader-is-kept",
        "trioha/dledger/leader_elector.py",
        '            state.become_follower(state.term, "", "no leader heard")\n',
        "            state.draw_election_deadline()\n",
        ("tests/dledger/test_node.py",),
        "a member without a vote sends clients to a dead leader, or refuses a true one",
    ),
    Mutation(
        "one-word-empties-a-log",
        "trioha/dledger/entry_handler.py",
        "        if begin > state.leader_committed_offset:\n",
        "        if False:\n",
        ("tests/dledger/test_node.py",),
        "a follower without a message ends beyond all others, and may be elected",
    ),
    Mutation(
        "commit-of-an-older-term-empties-a-log",
        "trioha/dledger/member_state.py",
        "            self.leader_committed_offset = 0\n            self.matched",
        "            self.matched",
        ("tests/dledger/test_node.py",),
        "a leader that has told nothing yet is believed for what another said",
    ),
    Mutation(
        "half-is-a-majority",
        "trioha/dledger/quorum.py",
        "return count // 2 + 1",
        "return (count + 1) // 2",
        ("tests/dledger/test_membership.py",),
        "two halves of four, two leaders",
    ),
    Mutation(
        "leader-without-a-majority-stays",
        "trioha/dledger/leadership.py",
        "self._heard_by_majority_ms() < state.settings.election_timeout_min_ms:",
        "self._heard_by_majority_ms() <= state.settings.election_timeout_min_ms:",
        ("tests/dledger/test_node.py",),
        "check-quorum comes one heartbeat later than the lease allows",
    ),
    Mutation(
        "returning-member-forgets-a-lease",
        "trioha/dledger/member_state.py",
        "self.heard_ms = now_ms if self.term > 0 else now_ms - settings.election_timeout_min_ms",
        "self.heard_ms = now_ms - settings.election_timeout_min_ms",
        ("tests/dledger/test_node.py",),
        "a member that restarts votes while the leader it heard still answers reads on its lease",
    ),
    Mutation(
        "timers-before-their-queue-is-seen",
        "trioha/broker/timers/service.py",
        "if (not entries or self._position >= stop) and not self._is_hidden:",
        "if not entries or self._position >= stop:",
        ("tests/broker/timers/test_service.py",),
        "a master that comes back delivers again what it had delivered",
    ),
    Mutation(
        "held-up-leader-never-steps-down",
        "trioha/dledger/leadership.py",
        "elif self._asks_once_more or not state.is_late(self.next_heartbeat_ms):",
        "elif not state.is_late(self.next_heartbeat_ms):",
        ("tests/dledger/test_node.py",),
        "a leader on a slow machine leads on though no majority answers",
    ),
    Mutation(
        "vote-record-of-another-group",
        "trioha/dledger/vote_record.py",
        "if (cluster, group, member_id) != (owner.cluster, owner.group, owner.member_id):",
        "if (group, member_id) != (owner.group, owner.member_id):",
        ("tests/dledger/test_vote_record.py",),
        "a member believes what a store of another cluster has promised",
    ),
    # failover
    Mutation(
        "longest-log-wins",
        "trioha/failover/ranking.py",
        "        replica.log_epoch or 0,\n        replica.max_phy_offset or 0,\n",
        "        replica.max_phy_offset or 0,\n        replica.log_epoch or 0,\n",
        ("tests/failover/test_plan.py",),
        "a long log of an old term is promoted, and lacks what was acknowledged since",
    ),
    Mutation(
        "loss-is-never-told",
        "trioha/failover/ranking.py",
        "return LossWindow(lost, exact=True, acknowledged=lost > 0)",
        "return LossWindow(lost, exact=True, acknowledged=False)",
        ("tests/failover/test_plan.py",),
        "a promotion that gives up acknowledged messages needs no --force",
    ),
    Mutation(
        "late-commit-sets-a-group-back",
        "trioha/broker/request_gate.py",
        """                request.ext_fields[FORWARDED_FIELD] = "true"\n""",
        "                pass\n",
        ("tests/broker/test_request_gate.py",),
        "after a switch a consumer that starts anew gets messages it had finished with",
    ),
    Mutation(
        "late-commit-is-taken",
        "trioha/broker/offset_requests.py",
        "elif request.ext_bool(FORWARDED_FIELD) and offset < (",
        "elif False and offset < (",
        ("tests/broker/test_offsets.py",),
        "after a switch a consumer that starts anew gets messages it had finished with",
    ),
    # accounts
    Mutation(
        "late-change-is-not-overtaken",
        "trioha/broker/metadata_waits.py",
        "self._pipeline.roles_taken != roles_taken:",
        "False:",
        ("tests/broker/test_metadata_waits.py", "tests/services/ha/test_shared_accounts.py"),
        "an account made while a switch is in progress is called done, and the new master lacks it",
    ),
    # security
    Mutation(
        "known-send-needs-no-signature",
        "trioha/security/guard.py",
        "and account.key.has_signed_values(values, request.body, signature)",
        "and bool(signature)",
        ("tests/security/test_guard.py",),
        "who knows the name of a busy producer sends to its topics",
    ),
    Mutation(
        "proof-serves-twice",
        "trioha/remoting/challenges.py",
        "        given.remove(challenge)\n",
        "",
        ("tests/remoting/test_node_proofs.py",),
        "a recorded order of an operator is carried out again",
    ),
    Mutation(
        "proof-leaves-the-code-out",
        "trioha/remoting/node_proofs.py",
        "[purpose, int(command.code), fields, command.body_bytes()],",
        "[purpose, fields, command.body_bytes()],",
        ("tests/remoting/test_node_proofs.py",),
        "the proof of one request serves for another one",
    ),
    Mutation(
        "account-without-permissions-may-all",
        "trioha/security/accounts.py",
        "return not owned & AccountPerm.DENY and owned & need.perm != 0",
        "return not owned & AccountPerm.DENY",
        ("tests/security/test_accounts.py",),
        "a consumer sends to its topic",
    ),
    Mutation(
        "lie-is-measured-from-nothing",
        "trioha/wire/epoch_numbers.py",
        "    if epoch - recorded > word:\n",
        "    if epoch - recorded > EPOCH_MAX:\n",
        ("tests/wire/test_epoch_numbers.py",),
        "one packet of a stranger fences a master for good",
    ),
)


def check_list(root: Path, mutations: Sequence[Mutation]) -> None:
    """Compare the list with the sources. Errors: Rotten, with everything that does not fit."""
    found = []
    for mutation in mutations:
        path = root / mutation.file
        count = path.read_text().count(mutation.before) if path.is_file() else 0
        if count != 1 or not mutation.before:
            found.append(f"{mutation.name}: its line is {count} times in {mutation.file}, not once")
        if mutation.before == mutation.after:
            found.append(f"{mutation.name}: changes nothing")
        found += [
            f"{mutation.name}: there is no {test}"
            for test in mutation.tests
            if not (root / test.split("::")[0]).is_file()
        ]
    names = [mutation.name for mutation in mutations]
    found += [f"{name}: named twice" for name in sorted(set(names)) if names.count(name) > 1]
    if found:
        raise Rotten("\n".join(found))


class Tree:
    """A copy of the sources in which faults are made."""

    def __init__(self, source: Path, root: Path) -> None:
        self.root = root
        shutil.copytree(source, root, ignore=shutil.ignore_patterns(*_NOT_COPIED))
        self._environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("TRIOHA_")},
            "PYTHONPATH": str(root),
            "TEST_COMMIT": "none",  # the copy is no repository
            # A fault changes neither size nor second of a file, as a rule.
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def probe(self, mutation: Mutation, limit_s: float = LIMIT_S) -> tuple[Verdict, str]:
        """Make the fault, run its tests, take the fault out; return the verdict and the reason."""
        path = self.root / mutation.file
        whole = path.read_text()
        path.write_text(whole.replace(mutation.before, mutation.after))
        try:
            why = self._why_not_imported(mutation.file)
            return (Verdict.BROKEN, why) if why else self.run(mutation.tests, limit_s)
        finally:
            path.write_text(whole)

    def run(self, tests: Sequence[str], limit_s: float) -> tuple[Verdict, str]:
        """Run tests as the sources are now."""
        report = self.root / "probe.xml"
        report.unlink(missing_ok=True)
        command = ["-m", "pytest", "-q", "-x", "--tb=line", "--no-header", "-p", "no:cacheprovider"]
        command += ["--hypothesis-seed=0"]  # the same verdict every time
        try:
            done = self._python(*command, f"--junitxml={report}", *tests, limit_s=limit_s)
        except subprocess.TimeoutExpired:
            return Verdict.HUNG, f"no end in {limit_s:.0f} s"
        return judge(done.returncode, report, done.stdout)

    def _why_not_imported(self, file: str) -> str:
        """Import the module in a process of its own; empty if that works, and from this tree."""
        module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        program = f"import {module} as it; print(it.__file__)"
        try:
            done = self._python("-c", program, limit_s=LIMIT_S)
        except subprocess.TimeoutExpired:
            return "its import does not end"
        if done.returncode:
            return done.stderr.strip().rpartition("\n")[2]
        if not done.stdout.startswith(str(self.root)):
            raise Rotten(f"{module} is imported from {done.stdout.strip()}, not from the copy")
        return ""

    def _python(self, *arguments: str, limit_s: float) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )


def judge(returncode: int, report: Path, output: str) -> tuple[Verdict, str]:
    """Return the verdict of a run of pytest, by its exit status and its report, and the reason."""
    last = output.strip().rpartition("\n")[2]
    if returncode in (4, 5):  # usage: no such test; no test collected
        return Verdict.NO_TEST, last
    try:
        cases = list(ElementTree.parse(report).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return Verdict.BROKEN, f"no report; exit status {returncode}: {last}"
    ran = [case for case in cases if case.find("skipped") is None]
    failed = [
        (case.get("name", "?"), failure.get("message", ""))
        for case in ran
        if (failure := case.find("failure")) is not None
    ]
    if returncode == 1 and failed:
        name, message = failed[0]
        return (Verdict.HUNG if "pytest-timeout" in message else Verdict.NOTICED), name
    if returncode:
        return Verdict.BROKEN, f"exit status {returncode}: {last}"
    if not ran:
        return Verdict.NO_TEST, "every test was skipped"
    return Verdict.SURVIVED, f"{len(ran)} tests passed"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="show the faults and make none")
    parser.add_argument("-k", dest="name", default="", help="only faults with this in their name")
    options = parser.parse_args(arguments)
    chosen = [mutation for mutation in MUTATIONS if options.name in mutation.name]
    if not chosen:
        parser.error(f"no fault has {options.name!r} in its name; --list shows them")
    try:
        check_list(REPO, MUTATIONS)
        if options.list:
            for one in chosen:
                print(f"{one.name:38}{one.file}\n    {one.why}\n    {' '.join(one.tests)}")
            return 0
        return probe_all(chosen)
    except Rotten as error:
        print(f"{error}\nthe list in {Path(__file__).name} has to follow the sources")
        return 2


def probe_all(chosen: Sequence[Mutation]) -> int:
    """Make every fault in turn and say what became of it."""
    with tempfile.TemporaryDirectory(prefix="trioha-probe-") as directory:
        tree = Tree(REPO, Path(directory) / "tree")
        tests = sorted({test for mutation in chosen for test in mutation.tests})
        verdict, why = tree.run(tests, ALL_LIMIT_S)
        if verdict is not Verdict.SURVIVED:
            print(f"the tests do not pass without any fault: {verdict.value}, {why}")
            return 1
        print(f"without a fault: {why}", flush=True)
        unnoticed = []
        for mutation in chosen:
            began_s = time.monotonic()
            verdict, why = tree.probe(mutation)
            if verdict is not Verdict.NOTICED:
                unnoticed.append(mutation.name)
            took_s = time.monotonic() - began_s
            print(f"{verdict.value:9} {took_s:5.1f} s  {mutation.name}: {why}", flush=True)
    print(f"{len(chosen) - len(unnoticed)} of {len(chosen)} faults noticed")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
