"""Documents of the commands beside the nouns, as types: docs/schemas is made of them.

The nouns' documents are in `trioha.jobs.documents`.
"""

from __future__ import annotations

import inspect
from typing import Any, Literal, NotRequired, TypedDict, get_type_hints

import attrs
import msgspec

from trioha.analysis.explain.explanation import EvidenceLine, VerdictLine
from trioha.analysis.results import Chart, Column, Finding
from trioha.bench.catch_up import CatchUpReport
from trioha.bench.drain import DrainReport
from trioha.bench.end_to_end import EndToEndReport
from trioha.bench.produce import ProduceReport
from trioha.cli.doctor_machine import Check
from trioha.client.acl_admin import ShownAccount, ShownAcl
from trioha.client.timers_admin import PendingTimers
from trioha.client.transactions_admin import OpenTransactions
from trioha.dledger.status import FollowerStatus
from trioha.failover.outcome import Step
from trioha.ha.epochs import EpochRecord
from trioha.ha.replicas import AbsentHost, ReplicaStatistics
from trioha.jobs.documents import DOCUMENTS
from trioha.services.ha.client import SlaveStatistics
from trioha.services.node.request_forwarding import ForwardingStatistics
from trioha.store.inspect import DamagedStretch, DiffReport, VerifyReport

Scalar = str | int | float | bool | None


def with_fields(kind: type[attrs.AttrsInstance], **more: Any) -> Any:
    """Return a type that has the fields of an attrs class, and more of them or others.

    A field with a default is not required: a node of an older version does not tell it.
    """
    hints = get_type_hints(kind)
    known = {
        field.name: NotRequired[hints[field.name]]
        if field.default is not attrs.NOTHING
        else hints[field.name]
        for field in attrs.fields(kind)
    }
    return TypedDict(kind.__name__, {**known, **more})  # type: ignore[operator]


class Sent(TypedDict):
    status: str
    msg_id: str
    offset_msg_id: str
    topic: str
    broker: str
    queue_id: int
    queue_offset: int
    recall_handle: NotRequired[str]


class Produced(TypedDict):
    topic: str
    sent: int
    statuses: dict[str, int]
    seconds: float
    messages_per_s: float
    last: Sent | None


class Consumed(TypedDict):
    topic: str
    broker: str
    queue_id: int
    queue_offset: int
    msg_id: str
    offset_msg_id: str
    tags: str | None
    keys: str | list[str] | None
    properties: dict[str, str]
    body: NotRequired[str]
    body_base64: NotRequired[str]
    born_timestamp: int
    store_timestamp: int
    received_timestamp: int
    reconsume_times: int


class CheckReading(TypedDict):
    rule: str
    subject: str
    value: float | None
    unit: str
    warn: float | None
    crit: float | None
    level: str | None


class Checked(TypedDict):
    check: str
    status: Literal["OK", "WARNING", "CRITICAL", "UNKNOWN"]
    code: int
    problems: list[str]
    summary: str
    readings: list[CheckReading]


class Recovered(TypedDict):
    cut: str
    dry_run: bool
    sent: int
    present: int
    undecided: int
    damaged: int
    topics: dict[str, int]
    statuses: dict[str, int]


SlaveLink: Any = with_fields(
    SlaveStatistics,
    heartbeat_interval_s=float,
    housekeeping_s=float,
    metadata=str,
    metadata_position=int,
)
Link: Any = with_fields(
    ReplicaStatistics,
    gap_s=float | None,
    # A compiled class tells no unions.
    last_error_age_s=float | None,
    home_id=NotRequired[int | None],
)
Absent: Any = with_fields(AbsentHost)
Epoch: Any = with_fields(EpochRecord, nonce=str)
Follower: Any = with_fields(FollowerStatus, phase=str)


class Resync(TypedDict):
    address: str
    min_phy_offset: int
    max_phy_offset: int
    reason: str
    follows: str
    holds_more: bool
    home_id: int
    slave: NotRequired[SlaveLink]
    result: Literal["dry-run", "done", "failed"]


class RefusedPeer(TypedDict):
    peer: str
    reason: str
    age_s: float


class CutLog(TypedDict):
    path: str
    begin: int
    end: int
    wall_ms: int


class RaftConfiguration(TypedDict):
    voters: list[str]
    learners: list[str]


class RaftRefusal(TypedDict):
    peer: str
    reason: str
    age_ms: int


class RaftLink(TypedDict):
    peer: str
    address: str
    connected: bool
    rtt_ms: float | None
    heard_age_ms: int | None
    last_error: str
    dropped: int


class RaftMetadata(TypedDict):
    position: int
    committed_position: int
    applied_offset: int
    snapshot_offset: int
    uncommitted: int


class RaftMember(TypedDict):
    """A member's own view. Offsets and lease are there once it takes part."""

    member_id: str
    group: str
    cluster: str
    secret: bool
    heartbeat_interval_ms: int
    election_timeout_min_ms: int
    election_timeout_max_ms: int
    replicated_in_memory: bool
    lease_reads: bool
    addresses: dict[str, str]
    elections: int
    uncommitted_age_ms: int | None
    bootstrap: str
    refusals: list[RaftRefusal]
    links: list[RaftLink]
    role: str
    term: int
    leader_id: str
    is_serving: bool
    impaired: bool
    writable: bool
    failed: str
    transfer_target: str
    transfer_error: str
    configuration: RaftConfiguration
    followers: list[Follower]
    begin_offset: NotRequired[int]
    committed_offset: NotRequired[int]
    held_offset: NotRequired[int]
    end_offset: NotRequired[int]
    lease_until_ms: NotRequired[int]
    metadata: NotRequired[RaftMetadata]


class HaBroker(TypedDict):
    """One broker. What only a trioha node that answers can tell is not required."""

    name: str
    id: int
    registered_id: int
    role: str | None
    address: str
    ha_address: str | None
    min_phy_offset: int | None
    max_phy_offset: int | None
    flushed_offset: int | None
    connections: list[Link]
    slave: SlaveLink | None
    namesrvs: dict[str, str]
    gap_bytes: NotRequired[int | None]
    registered: NotRequired[bool]
    error: NotRequired[str]
    version: NotRequired[str]
    cluster: NotRequired[str]
    insecure: NotRequired[bool]
    certificate_left_s: NotRequired[float | None]
    uptime_s: NotRequired[float]
    dispatched_offset: NotRequired[int]
    indexed_offset: NotRequired[int]
    reserved_s: NotRequired[float]
    disk_ratio: NotRequired[float]
    writable: NotRequired[bool]
    put_total: NotRequired[int]
    get_total: NotRequired[int]
    client_connections: NotRequired[int]
    puts_waiting: NotRequired[int]
    metadata_position: NotRequired[int]
    changes_waiting: NotRequired[int]
    forwarding: NotRequired[ForwardingStatistics]
    cuts: NotRequired[list[CutLog]]
    refusals: NotRequired[list[RefusedPeer]]
    absent: NotRequired[list[Absent]]
    epochs: NotRequired[list[Epoch]]
    follows: NotRequired[str]
    ticket: NotRequired[dict[str, Scalar] | None]
    fenced_by: NotRequired[str]
    held_back_bytes: NotRequired[int]
    home_id: NotRequired[int]
    standing: NotRequired[str]
    epoch: NotRequired[int]
    promised_epoch: NotRequired[int]
    level_since_start: NotRequired[bool]
    log_epoch: NotRequired[int]
    sync: NotRequired[bool | None]
    members: NotRequired[dict[str, str]]
    raft: NotRequired[RaftMember]


class HaStatus(TypedDict):
    brokers: list[HaBroker]


class FailoverPlace(TypedDict):
    home_id: int
    address: str


class FailoverTarget(FailoverPlace):
    epoch: int
    max_phy_offset: int


class FailoverCandidate(FailoverPlace):
    rank: int
    reason: str


class FailoverLoss(TypedDict):
    bytes: int | None
    exact: bool
    acknowledged: bool
    text: str


class FailoverRefusal(TypedDict):
    what: str
    cure: str
    by_force: bool


class FailoverPlan(TypedDict):
    broker: str
    kind: str
    epoch: int
    master: FailoverPlace | None
    target: FailoverTarget | None
    candidates: list[FailoverCandidate]
    loss: FailoverLoss | None
    refusals: list[FailoverRefusal]
    may_run: bool


class FailoverOutcome(TypedDict):
    """`message` and `notes` are there once the plan was carried out."""

    plan: FailoverPlan
    steps: list[Step]
    result: Literal["dry-run", "done", "refused", "unreachable", "unknown"]
    message: NotRequired[str]
    notes: NotRequired[list[str]]


class FailoverRecord(TypedDict):
    ticket_id: str
    broker: str
    operator: str
    account: NotRequired[str]
    forced: bool
    started_wall_ms: int
    ended_wall_ms: int
    plan: FailoverPlan
    steps: list[Step]
    result: str
    message: str


class FailoverAudit(TypedDict):
    broker: str
    failovers: list[FailoverRecord]
    silent: list[str]


class RaftPlan(TypedDict):
    broker: str
    do: Literal["transfer", "add", "promote", "remove"]
    member: str
    address: str
    leader: str | None
    leader_address: str
    term: int | None
    would: str
    costs: str
    refusals: list[str]


class RaftChange(TypedDict):
    plan: RaftPlan
    result: Literal["dry-run", "refused", "done"]
    message: str
    elapsed_ms: int | None


class RaftStatusMember(TypedDict):
    member: str | None
    id: int | None
    address: str
    registered: bool
    role: str | None
    state: str
    why: str
    error: str | None
    gap_bytes: int | None
    heard_age_s: float | None
    raft: RaftMember | None


class RaftStatusGroup(TypedDict):
    name: str
    cluster: str
    leader: str | None
    term: int | None
    serving: bool
    committed_offset: int | None
    voters: list[str]
    learners: list[str]
    voters_heard: int | None
    state: str
    why: str
    members: list[RaftStatusMember]


class RaftStatuses(TypedDict):
    groups: list[RaftStatusGroup]


class Converted(TypedDict):
    root: str
    begin_offset: int
    end_offset: int
    term: int
    epoch: int
    is_done: bool
    set_aside: str | None
    result: Literal["dry-run", "done"]


class Repaired(TypedDict):
    root: str
    group: str
    member_id: str
    is_impaired: bool
    damage: list[str]
    log_bytes: int
    result: Literal["dry-run", "refused", "done"]
    message: NotRequired[str]
    set_aside: NotRequired[str]


class AcceptedLoss(TypedDict):
    root: str
    reason: str
    has_log: bool
    held_end: int
    left: list[int] | None
    begins_at: int
    queues: int
    set_aside: str | None
    result: Literal["dry-run", "done"]


class DumpedRecord(TypedDict):
    phy_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    msg_id: str
    tags: str | None
    keys: str | list[str] | None
    properties: dict[str, str]
    flag: int
    sys_flag: int
    crc: int
    born_timestamp: int
    born_host: str
    store_timestamp: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    body: NotRequired[str]
    body_hex: NotRequired[str]


class Recorded(TypedDict):
    file: str
    frame_count: int
    mark_count: int
    byte_count: int
    file_count: int


class RecordingFlaw(TypedDict):
    position: int
    bytes: int
    reason: str


class RecordingMark(TypedDict):
    ts: str
    kind: str
    subject: str
    text: str
    level: str


class RecordingFacts(TypedDict):
    file: str
    bytes: int
    recorded_by: dict[str, Scalar]
    start: str
    end: str
    duration_s: float
    frames: int
    cut_short: bool
    flaws: list[RecordingFlaw]
    nodes: list[str]
    mark_counts: dict[str, int]
    marks: list[RecordingMark]


class PackedFile(TypedDict):
    name: str
    bytes: int
    sha256: str


class Bundle(TypedDict):
    file: str
    format: int
    made_by: str
    made_at: str
    namesrv: str | None
    events_since: str
    missing: list[str]
    files: list[PackedFile]


class JournalEvent(TypedDict):
    """One event; the fields of each kind are in docs/journal.md."""

    ts: str
    sequence: int
    wall_ms: int
    event: str


class Done(TypedDict):
    done: list[str]


class Setting(TypedDict):
    value: Scalar
    origin: str


class SettingKey(TypedDict):
    key: str
    default: Scalar
    allowed: str
    doc: str
    ours: bool


class Nursery(TypedDict):
    tasks: list[Task]
    left_out: int
    deadline_in_s: float | None


class Task(TypedDict):
    name: str
    waits_in: str
    nurseries: list[Nursery]


class Tasks(TypedDict):
    count: int
    root: Task


class ReportTable(TypedDict):
    name: str
    title: str
    note: str | None
    columns: list[Column]
    rows: list[dict[str, Scalar]]


class Report(TypedDict):
    name: str
    title: str
    question: str
    exit_code: int
    findings: list[Finding]
    tables: list[ReportTable]
    charts: list[Chart]


class EngineUsed(TypedDict):
    name: Literal["local", "spark"]
    version: str
    master: NotRequired[str]
    parallelism: NotRequired[int]
    java: NotRequired[str]


class AnalyzedStore(TypedDict):
    label: str
    segments: int
    bytes: int
    from_offset: int | None
    records: int | None
    first_ms: int | None
    last_ms: int | None


class MadeColumn(TypedDict):
    name: str
    kind: str
    unit: str | None


class MadeTable(TypedDict):
    name: str
    rows: int
    columns: list[MadeColumn]


class MadeReport(TypedDict):
    name: str
    title: str
    seconds: float
    exit_code: NotRequired[int]
    tables: NotRequired[list[MadeTable]]
    error: NotRequired[str]
    skipped: NotRequired[str]


class AnalysisManifest(TypedDict):
    made_by: str
    format: int
    trioha: str
    python: str
    partial: bool
    reason: str | None
    started_ms: int
    finished_ms: int | None
    engine: EngineUsed
    from_ms: int | None
    to_ms: int | None
    stores: list[AnalyzedStore]
    journals: list[str]
    reports: list[MadeReport]
    compared_with: str | None
    notes: list[str]


class Analysis(TypedDict):
    out: str
    manifest: AnalysisManifest
    reports: dict[str, Report]


class Explained(TypedDict):
    question: str
    found: bool
    verdicts: list[VerdictLine]
    timeline: list[EvidenceLine]
    unknown: list[str]
    notes: list[str]


class Exported(TypedDict):
    out: str
    records: int
    damaged: int


class ShownContext(TypedDict):
    namesrv: str
    timeout_s: float | None
    access_key: str
    tls: bool
    origin: str


class AlertRule(TypedDict):
    area: str
    unit: str
    warn: float | None
    crit: float | None
    for_s: float
    doc: str


class ShownContextAlerts(ShownContext):
    alerts: dict[str, AlertRule]


class ContextList(TypedDict):
    file: str
    current: str | None
    contexts: dict[str, ShownContext]


class Diagnosis(TypedDict):
    ok: bool
    checks: list[Check]


class Versions(TypedDict):
    trioha: str
    build: str
    python: str
    implementation: str
    platform: str
    speaks: str
    libraries: dict[str, str]


def _bench(name: str, report: type) -> Any:
    """Return the type of a benchmark's document; its settings are those that it was given."""
    return msgspec.defstruct(
        f"{name.title()}Bench",
        [("bench", Literal[name]), ("setup", dict[str, Scalar]), ("report", report)],
    )


PRINTED: dict[str, tuple[Any, ...]] = {
    **{name: (kind,) for name, kind in DOCUMENTS.items()},
    "produce": (Produced, Sent),
    "consume": (Consumed,),
    **{f"check {area}": (Checked,) for area in ("broker", "disk", "group", "ha", "namesrv")},
    "ha recover": (Recovered,),
    "ha resync": (Resync,),
    "ha status": (HaStatus,),
    "failover": (FailoverOutcome, FailoverAudit),
    **{f"raft {do}": (RaftChange,) for do in ("add", "promote", "remove", "transfer")},
    "raft convert": (Converted,),
    "raft repair": (Repaired,),
    "raft status": (RaftStatuses,),
    "log accept-loss": (AcceptedLoss,),
    "log diff": (with_fields(DiffReport, equal=bool),),
    "log dump": (DumpedRecord,),
    "log verify": (with_fields(VerifyReport, sound=bool, damage=list[DamagedStretch]),),
    "record": (Recorded, RecordingFacts),
    "bundle": (Bundle,),
    "journal follow": (JournalEvent,),
    "journal show": (JournalEvent,),
    "acl list": (dict[str, ShownAcl],),
    "acl get": (dict[str, ShownAccount | None],),
    "acl set": (Done,),
    "acl delete": (Done,),
    "transactions list": (dict[str, OpenTransactions],),
    "timers list": (dict[str, PendingTimers],),
    "node config": (dict[str, Setting],),
    "node tasks": (Tasks,),
    "analyze": (Analysis,),
    "analyze explain": (Explained,),
    "analyze export": (Exported,),
    "context list": (ContextList,),
    "context show": (ShownContextAlerts,),
    "config keys": (list[SettingKey],),
    "config show": (dict[str, Setting | Scalar],),
    "bench consume": (_bench("consume", DrainReport),),
    "bench e2e": (_bench("e2e", EndToEndReport),),
    "bench ha": (_bench("ha", CatchUpReport),),
    "bench produce": (_bench("produce", ProduceReport),),
    "doctor": (Diagnosis,),
    "version": (Versions,),
}
"""Command → the documents that it may print."""
OPEN = ("JournalEvent",)
"""Types that have more fields than those that are listed."""


def schema_of_command(name: str) -> dict[str, Any]:
    """Return the JSON schema of what a command prints: one document, or one on each line."""
    refs, known = msgspec.json.schema_components(PRINTED[name], ref_template="#/$defs/{name}")
    for kind in OPEN:
        if kind in known:
            known[kind]["additionalProperties"] = {}
    for told in known.values():
        if "description" in told:  # a docstring: Python 3.13 takes its indentation away by itself
            told["description"] = inspect.cleandoc(told["description"])
    one = refs[0] if len(refs) == 1 else {"anyOf": list(refs)}
    defs = {"$defs": known} if known else {}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **one, **defs}
