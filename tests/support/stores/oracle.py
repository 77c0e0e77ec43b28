"""Stores and journals made from a seed, and the truth about them: what reports are held against.

A `World` is a broker with its slave, as they are found after a while: topics, sizes, idle hours,
transactions, delayed messages, retries, dead letters and a group that lags; a slave that ends
before its master and has flipped bytes; a copy that lacks a segment and has damaged headers; a copy
whose index has wrong entries. A `Timeline` is the journals of a pair or of a DLEDGER group whose
masters die, are stopped, hand over and stand still. Nothing of the truth is read back from files.
"""

from __future__ import annotations

import random
import struct
from bisect import bisect_right
from pathlib import Path

import attrs

from support.stores.journals import BEGIN_MS, Diary
from support.stores.told import Told, ToldStore, copy_store, flip, write_config

SEGMENT_BYTES = 16 << 10
HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
SCHEDULE, DEAD = "SCHEDULE_TOPIC_XXXX", "%DLQ%readers"
TOPICS = ("orders", "clicks", "%RETRY%readers")
DELAYS_MS = {1: 1000, 3: 10_000}
"""Delay by level."""
OUTCOMES = ("committed", "rolled back", "given up", "waiting")
PAUSES_MS = (1, 5, 40, 700, 9_000, 3_600_000)
SLAVE = "127.0.0.1:40001"
MASTER_HA = "127.0.0.1:20001"


@attrs.frozen
class Transaction:
    """One transaction, however often its half message was stored."""

    born_ms: int
    checks: int
    outcome: str
    places: tuple[int, ...]
    """Queue offsets of its half message."""


@attrs.define
class Delayed:
    """Messages of one delay level: when each is due, and how many were delivered."""

    due_ms: list[int] = attrs.Factory(list)
    delivered: int = 0


@attrs.frozen
class Lag:
    """A sample of a link: the slave's end, the master's, and how old the first missing byte is."""

    at_s: float
    ack: int
    end: int
    behind_ms: int


@attrs.define(eq=False)
class World:
    """The files of one broker and its slave, and the truth about them."""

    master: ToldStore
    slave: Path
    slave_told: list[Told]
    """Records that the slave has."""
    flipped: list[Told]
    """Records of the slave with a flipped byte."""
    broken: Path
    lost: list[Told]
    """Records of the segment that `broken` lacks."""
    lost_segment: int | None
    renamed: list[Told]
    """Records of `broken` whose header names another topic."""
    misindexed: Path
    wrong_entries: list[int]
    """Offsets of the records whose index entries in `misindexed` have another hash."""
    transactions: list[Transaction]
    delayed: dict[int, Delayed]
    """Delayed messages by level."""
    consumed: dict[tuple[str, int], int]
    """Offsets of the group `readers`, by topic and queue."""
    journal: Diary
    lags: list[Lag]

    @property
    def told(self) -> list[Told]:
        return self.master.told

    @property
    def end(self) -> int:
        """End of the master's log."""
        return self.told[-1].phy_offset + self.told[-1].size


def make_world(root: Path, seed: int) -> World:
    """The world of a seed."""
    rng = random.Random(seed)
    transactions: list[Transaction] = []
    delayed = {level: Delayed() for level in DELAYS_MS}
    with ToldStore(
        root / "master", segment_bytes=SEGMENT_BYTES, log_chunk_bytes=SEGMENT_BYTES
    ) as master:
        _fill(master, rng, transactions, delayed)
    consumed = _consumed(master.told, rng)
    _write_offsets(master.root, rng, transactions, delayed, consumed)
    slave, slave_told = _slave(master, root / "slave", rng)
    flipped = rng.sample(slave_told[1:-1], rng.choice([0, 0, 1, 3, 20]))
    for victim in flipped:
        # One byte of it, wherever it is: header, body, topic or properties.
        place = rng.randrange(victim.size)
        flip(slave, victim.phy_offset + place, SEGMENT_BYTES, rng.randrange(1, 256))
    broken = copy_store(master.root, root / "broken")
    lost_segment, lost = _without_segment(broken, master.told, rng)
    whole = [told for told in master.told if told not in lost and told.topic == "orders"]
    renamed = rng.sample(whole, min(len(whole), rng.choice([0, 0, 1, 2])))
    for victim in renamed:
        # `orders` becomes `mrders`, which was never made.
        flip(broken, victim.phy_offset + 89 + len(victim.body), SEGMENT_BYTES, 2)
    misindexed, wrong_entries = _misindexed(master, root / "misindexed", rng)
    journal = Diary(root / "master", "broker-a:0")
    lags = _journal(journal, master.told, rng)
    return World(
        master, slave, slave_told, flipped, broken, lost, lost_segment, renamed, misindexed,
        wrong_entries, transactions, delayed, consumed, journal, lags,
    )  # fmt: skip


def _fill(
    store: ToldStore,
    rng: random.Random,
    transactions: list[Transaction],
    delayed: dict[int, Delayed],
) -> None:
    at_ms = BEGIN_MS + 60_000
    open_: list[list[Told]] = []
    waiting: dict[int, list[Told]] = {level: [] for level in DELAYS_MS}
    for number in range(rng.randrange(120, 200)):
        at_ms += rng.choice(PAUSES_MS)
        kind = rng.random()
        if kind < 0.1:
            key = f"{number:032X}"
            open_.append([store.put(HALF, at_ms=at_ms, unique_key=key, TRAN_MSG="true")])
        elif kind < 0.2 and open_:
            copies = rng.choice(open_)
            copies.append(_again(store, copies[0], at_ms, HALF, len(copies)))
        elif kind < 0.27 and open_:
            copies = open_.pop(rng.randrange(len(open_)))
            transactions.append(_ended(store, rng, copies, at_ms))
        elif kind < 0.35:
            level = rng.choice(list(DELAYS_MS))
            due_ms = at_ms + DELAYS_MS[level]
            delayed[level].due_ms.append(due_ms)
            told = store.put(
                *(SCHEDULE, level - 1),
                at_ms=at_ms,
                unique_key=f"{number:032X}",
                tags_code=due_ms,
                DELAY=str(level),
                REAL_TOPIC="orders",
            )
            waiting[level].append(told)
        elif kind < 0.4 and any(waiting.values()):
            level = rng.choice([level for level, told in waiting.items() if told])
            first = waiting[level].pop(0)
            delayed[level].delivered += 1
            store.put(
                "orders",
                at_ms=at_ms,
                latency_ms=at_ms - first.born_ms,
                unique_key=first.unique_key,
                DELAY=str(level),
            )
        elif kind < 0.5:
            # A consumer sends back one of a few messages; without their key the first id tells.
            victim, times = rng.randrange(4), rng.randrange(1, 4)
            store.put(
                rng.choice(["%RETRY%readers", DEAD]),
                at_ms=at_ms,
                unique_key=f"F{victim:031X}" if victim % 2 else "",
                reconsume_times=times,
                RETRY_TOPIC=rng.choice(TOPICS[:2]),
                ORIGIN_MESSAGE_ID=f"{victim:032X}",
            )
        else:
            store.put(
                rng.choice(TOPICS),
                rng.randrange(3),
                at_ms=at_ms,
                body=rng.randbytes(rng.choice([0, 10, 300, 900])),
                tags=rng.choice(["", "x"]),
                keys=rng.choice([(), (f"k{number}",), ("hot", f"k{number}")]),
                host=rng.choice(["10.0.0.1", "10.0.0.2"]),
                port=rng.randrange(40_000, 40_003),
                latency_ms=rng.choice([-7, 0, 3, 250, 70_000]),
                unique_key=f"{number:032X}",
            )
    transactions += [_transaction(copies, "waiting") for copies in open_]


def _again(store: ToldStore, half: Told, at_ms: int, topic: str, checks: int = 0) -> Told:
    """The half message once more, born when it was."""
    return store.put(
        topic,
        at_ms=at_ms,
        body=half.body,
        latency_ms=at_ms - half.born_ms,
        sys_flag=8 if topic in TOPICS else 0,
        unique_key=half.unique_key,
        TRANSACTION_CHECK_TIMES=str(checks),
    )


def _ended(store: ToldStore, rng: random.Random, copies: list[Told], at_ms: int) -> Transaction:
    outcome = rng.choice(OUTCOMES[:3])
    if outcome == "given up":
        _again(store, copies[0], at_ms, GIVEN_UP)
    else:
        if outcome == "committed":
            _again(store, copies[0], at_ms, "orders")
        # A producer ends the copy that it was asked for, or the first one, late.
        place = rng.choice(copies).queue_offset
        store.put(OP, at_ms=at_ms, tags="d", body=b"%d" % place)
    return _transaction(copies, outcome)


def _transaction(copies: list[Told], outcome: str) -> Transaction:
    places = tuple(copy.queue_offset for copy in copies)
    return Transaction(copies[0].born_ms, len(copies) - 1, outcome, places)


def _consumed(told: list[Told], rng: random.Random) -> dict[tuple[str, int], int]:
    """Return the offset of the group `readers` in each queue that it reads."""
    ends = {
        (each.topic, each.queue_id): each.queue_offset + 1
        for each in told
        if each.topic in ("orders", "clicks")
    }
    return {queue: rng.choice([end, rng.randrange(end + 1)]) for queue, end in ends.items()}


def _write_offsets(
    root: Path,
    rng: random.Random,
    transactions: list[Transaction],
    delayed: dict[int, Delayed],
    consumed: dict[tuple[str, int], int],
) -> None:
    # The checker's offset: the newest that is right, or an older one, as a slave has it.
    waiting = [each.places[-1] for each in transactions if each.outcome == "waiting"]
    offset = rng.randrange(min(waiting, default=0) + 1)
    offsets = {f"{HALF}@CID_RMQ_SYS_TRANS": {"0": offset}}
    for (topic, queue_id), place in consumed.items():
        offsets.setdefault(f"{topic}@readers", {})[str(queue_id)] = place
    write_config(root, "consumerOffset.json", {"offsetTable": offsets})
    done = {str(level): each.delivered for level, each in delayed.items()}
    write_config(root, "delayOffset.json", {"offsetTable": done})


def _misindexed(master: ToldStore, root: Path, rng: random.Random) -> tuple[Path, list[int]]:
    """A copy in whose index some entries have another hash, none of them a file's first or last."""
    copy_store(master.root, root)
    entries_at = 40 + 4 * master.config.hash_slot_count
    places: list[tuple[Path, int]] = []
    for path in sorted((root / "index").iterdir()):
        (following,) = struct.unpack_from(">i", path.read_bytes(), 36)
        places += [(path, entries_at + 20 * number) for number in range(2, following - 1)]
    wrong = []
    for path, place in rng.sample(places, rng.choice([0, 0, 1, 3])):
        data = bytearray(path.read_bytes())
        key_hash, phy_offset = struct.unpack_from(">iq", data, place)
        struct.pack_into(">i", data, place, key_hash ^ 1 << rng.randrange(31))
        path.write_bytes(data)
        wrong.append(phy_offset)
    return root, wrong


def _slave(master: ToldStore, root: Path, rng: random.Random) -> tuple[Path, list[Told]]:
    copy_store(master.root, root)
    count = rng.choice([len(master.told), rng.randrange(60, len(master.told))])
    if count < len(master.told):
        store = ToldStore(root, segment_bytes=SEGMENT_BYTES, log_chunk_bytes=SEGMENT_BYTES)
        store.store.truncate_log(master.told[count].phy_offset)
        store.store.close()
    return root, master.told[:count]


def _without_segment(
    root: Path, told: list[Told], rng: random.Random
) -> tuple[int | None, list[Told]]:
    last = told[-1].phy_offset // SEGMENT_BYTES
    if last < 2 or rng.random() < 0.4:
        return None, []
    base = rng.randrange(1, last) * SEGMENT_BYTES
    (root / "commitlog" / f"{base:020d}").unlink()
    return base, [each for each in told if base <= each.phy_offset < base + SEGMENT_BYTES]


def _journal(diary: Diary, told: list[Told], rng: random.Random) -> list[Lag]:
    """The master's journal of its link, with samples as a busy and as an idle node makes them."""
    times = [each.store_ms for each in told]
    ends = [each.phy_offset + each.size for each in told]

    def end_at(wall_ms: int) -> int:
        count = bisect_right(times, wall_ms)
        return ends[count - 1] if count else 0

    diary.start(0, "SYNC_MASTER", ha_listen=MASTER_HA)
    diary.tell(2, "ha_connected", peer=SLAVE, offset=0)
    diary.alive(2, "SYNC_MASTER", 0)
    lags: list[Lag] = []
    moments = sorted({rng.choice(times) + rng.randrange(3_000) for _ in range(30)})
    acked = 0
    for wall_ms in moments:
        end = end_at(wall_ms)
        at_s = (wall_ms - BEGIN_MS) / 1000
        if rng.random() < 0.3:
            diary.alive(at_s, "SYNC_MASTER", end)
            continue
        reached = bisect_right(ends, end)
        place = rng.choice([reached, rng.randrange(reached + 1)])
        acked = max(acked, ends[place - 1] if place else 0)
        first = bisect_right(ends, acked)
        behind_ms = wall_ms - times[first] if acked < end else 0
        diary.progress(at_s, SLAVE, acked, end)
        lags.append(Lag(at_s, acked, end, behind_ms))
    diary.stop((times[-1] - BEGIN_MS) / 1000 + 10)
    return lags


@attrs.frozen
class TrueOutage:
    begin_s: float
    end_s: float
    is_planned: bool
    noticed_s: float | None = None
    """When the name server saw the end of a connection."""


@attrs.frozen
class TrueEntry:
    """Entry that a timeline must have: kind, subject, from and until (seconds), what."""

    kind: str
    of: str
    begin_s: float
    end_s: float
    what: str
    count: int | None = None


@attrs.define(eq=False)
class Timeline:
    """Journals of one broker, and when it had no writable master."""

    diaries: list[Diary]
    outages: list[TrueOutage]
    begin_s: float
    end_s: float
    leads: list[tuple[str, float, int]]
    """Each new master or leader, its time and its term."""
    beside: list[TrueEntry]
    """Links, stalls and refusals."""


def make_timeline(root: Path, seed: int) -> Timeline:
    """A pair, or a DLEDGER group of three."""
    rng = random.Random(seed)
    names = rng.choice([("0", "1"), ("n0", "n1", "n2")])
    return _Timeline(root, names, rng).made()


class _Timeline:
    """Writes events in the order of time; each node's clock is the true one."""

    def __init__(self, root: Path, names: tuple[str, ...], rng: random.Random) -> None:
        self._rng = rng
        self._names = names
        self._is_group = len(names) > 2
        self._namesrv = Diary(root / "namesrv", "namesrv")
        self._nodes = {name: Diary(root / name, f"broker-a:{name}") for name in names}
        self._ports = {name: 20_001 + 4 * place for place, name in enumerate(names)}
        self._term = 0
        self._noticed_s: float | None = None
        self._beside_rng = random.Random()
        self._beside_rng.setstate(rng.getstate())
        self._leads: list[tuple[str, float, int]] = []
        self._beside: list[TrueEntry] = []
        self._dead = ""
        """The node that was killed and is not started again."""

    def made(self) -> Timeline:
        rng = self._rng
        self._namesrv.start(0, "")
        for name in self._names:
            self._begin(name, 1)
        leader = rng.choice(self._names)
        now_s = begin_s = 3.0
        self._lead(leader, now_s, unheard_s=None)
        outages = []
        for _ in range(rng.randrange(4)):
            now_s = self._live(leader, now_s + rng.uniform(5, 100))
            lasts_s = rng.choice([0.02, 1.3, 12.0])
            end = rng.choice([self._kill, self._hand_over, self._stand_still])
            others = [name for name in self._names if name != leader]
            following = rng.choice(others)
            self._noticed_s = None
            is_planned = end(leader, following, now_s, lasts_s)
            outages.append(TrueOutage(now_s, now_s + lasts_s, is_planned, self._noticed_s))
            leader, now_s = following, now_s + lasts_s
            if self._dead:
                break
        end_s = self._live(leader, now_s + 20)
        for name in self._names:
            if name not in (leader, self._dead):
                self._nodes[name].alive(end_s, "SLAVE")
        diaries = [*self._nodes.values(), self._namesrv]
        return Timeline(diaries, outages, begin_s, end_s, self._leads, self._beside)

    def _begin(self, name: str, at_s: float) -> None:
        diary, address = self._nodes[name], f"127.0.0.1:{self._ports[name]}"
        diary.tell(at_s, "node_started", node=f"broker-a:{name}", version="0", pid=1)
        self._role(name, at_s, "SLAVE")
        for peer in self._names if self._is_group else ():
            if peer != name:
                to = f"127.0.0.1:{self._ports[peer]}"
                diary.tell(at_s, "raft_connected", peer=peer, address=to)
        listen = {"listen": address, "ha_listen": "", "vip_listen": ""}
        diary.tell(at_s, "node_ready", **listen, elapsed_ms=1)

    def _role(self, name: str, at_s: float, role: str) -> None:
        broker_id = self._registered(name, is_master=role != "SLAVE")
        intervals = {"heartbeat_interval_ms": 150, "heartbeat_limit_ms": 1000}
        self._nodes[name].tell(at_s, "role", role=role, broker_id=broker_id, **intervals)

    def _registered(self, name: str, *, is_master: bool) -> int:
        """Its id at the name server: in a group the leader has 0."""
        if not self._is_group:
            return int(name)
        return 0 if is_master else self._names.index(name) + 1

    def _lead(self, name: str, at_s: float, unheard_s: float | None) -> None:
        diary = self._nodes[name]
        self._term += 1
        if not self._is_group:
            diary.tell(at_s, "epoch_began", epoch=self._term, start_offset=0, sync=True)
        else:
            if unheard_s is not None:
                told = {"term": self._term - 1, "leader": "", "reason": "no leader heard"}
                diary.tell(unheard_s, "raft_role", role="PRE_CANDIDATE", **told)
            told = {"term": self._term, "leader": name, "reason": "voted for by n1,n2"}
            diary.tell(at_s, "raft_role", role="LEADER", **told)
        self._role(name, at_s, "SYNC_MASTER")
        self._leads.append((name, at_s, self._term))

    def _live(self, leader: str, until_s: float) -> float:
        """Signs of life of every node that is not master, and of the master a while ago."""
        for name, diary in self._nodes.items():
            if name not in (leader, self._dead):
                diary.alive(until_s - 0.5, "SLAVE")
        said_s = until_s - self._rng.uniform(0.2, 9.0)
        if said_s > self._nodes[leader].now_s:
            self._go_wrong(leader, self._nodes[leader].now_s, said_s)
            self._nodes[leader].alive(said_s, "SYNC_MASTER")
        return until_s

    def _go_wrong(self, leader: str, begin_s: float, end_s: float) -> None:
        """Things that happen to a master and that it lives through, each noted as told."""
        rng, diary, node = self._beside_rng, self._nodes[leader], f"broker-a:{leader}"
        now_s, step_s = begin_s, (end_s - begin_s) / 10
        for what in rng.sample(["link", "stall", "silence", "waits", "refused"], k=3):
            first_s = now_s + rng.uniform(0.1, 1) * step_s
            now_s = last_s = first_s + rng.uniform(0.1, 1) * step_s
            peer = f"10.0.0.{len(self._beside) % 250}:5000"
            count = rng.randrange(1, 9)
            if what == "link":
                diary.tell(first_s, "ha_connected", peer=peer, offset=0)
                diary.tell(last_s, "ha_disconnected", peer=peer, reason="reset")
                link = f"{node} → {peer.partition(':')[0]}"
                entry = TrueEntry("link", link, first_s, last_s, "connected")
            elif what == "stall":
                age_ms = round((first_s - begin_s) * 500)
                diary.tell(first_s, "raft_commit_stalled", age_ms=age_ms, gap_bytes=count)
                diary.tell(last_s, "raft_commit_resumed", committed_offset=count)
                told = "commit makes no progress"
                entry = TrueEntry("stall", node, first_s - age_ms / 1000, last_s, told)
            elif what == "silence":
                gap_ms = round((last_s - first_s) * 1000)
                diary.tell(first_s, "ha_heartbeat_late", peer=peer, age_ms=0)
                diary.tell(last_s, "ha_heartbeat_resumed", peer=peer, gap_ms=gap_ms)
                entry = TrueEntry("stall", node, first_s, last_s, f"no heartbeat from {peer}")
            elif what == "waits":
                sample = {"waited_ms": 0, "longest_ms": 0, "bins": [], "unavailable": 0}
                diary.tell(last_s, "sync_waits", puts=count, timeouts=count, **sample)
                told = "puts answered FLUSH_SLAVE_TIMEOUT (stored, not acknowledged in time)"
                entry = TrueEntry("refusal", node, last_s, last_s, told, count)
            else:
                diary.tell(last_s, "connection_refused", peer=peer, reason="too many connections")
                told = "connection refused"
                entry = TrueEntry("refusal", node, last_s, last_s, told, 1)
            self._beside.append(entry)

    def _kill(self, leader: str, following: str, at_s: float, lasts_s: float) -> bool:
        is_noticed, comes_back = self._rng.random() < 0.7, self._rng.random() < 0.7
        if is_noticed or not (comes_back or self._is_group):
            self._noticed_s = at_s + self._rng.uniform(0, min(0.05, lasts_s))
            self._namesrv.tell(
                self._noticed_s,
                "broker_unregistered",
                broker="broker-a",
                id=self._registered(leader, is_master=True),
                address=f"127.0.0.1:{self._ports[leader]}",
                cluster="C",
                reason="connection closed",
            )
        # A member stands for election one to two seconds after it heard its leader.
        self._lead(following, at_s + lasts_s, unheard_s=at_s + min(0.7 * lasts_s, 1.8))
        if comes_back:
            self._begin(leader, at_s + lasts_s + 1)
        else:
            self._dead = leader
        return False

    def _hand_over(self, leader: str, following: str, at_s: float, lasts_s: float) -> bool:
        diary = self._nodes[leader]
        if self._is_group:
            told = {"term": self._term + 1, "leader": "", "reason": f"{following} has term 9"}
            diary.tell(at_s, "raft_role", role="FOLLOWER", **told)
            self._role(leader, at_s, "SLAVE")
        else:
            diary.tell(at_s, "writes_paused", ticket="T", log_end=0)
            diary.tell(at_s + lasts_s / 2, "fenced", epoch=self._term + 1, reason="handed over")
            self._role(leader, at_s + lasts_s / 2, "SLAVE")
        self._lead(following, at_s + lasts_s, unheard_s=None)
        return True

    def _stand_still(self, leader: str, following: str, at_s: float, lasts_s: float) -> bool:
        """A leader that does not run; its group goes on, and it hears of that much later."""
        if not self._is_group:
            return self._kill(leader, following, at_s, lasts_s)
        self._lead(following, at_s + lasts_s, unheard_s=at_s + min(lasts_s * 0.9, 1.8))
        told = {"term": self._term, "leader": "", "reason": f"{following} has term 9"}
        self._nodes[leader].tell(at_s + lasts_s + 3, "raft_role", role="FOLLOWER", **told)
        self._role(leader, at_s + lasts_s + 3, "SLAVE")
        return False
