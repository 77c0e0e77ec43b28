"""The reports by name, for help and lists. A report's module is imported when it is run."""

from __future__ import annotations

from typing import Final

from trioha.analysis.results import ReportSpec

_SPECS = (
    ReportSpec(
        "timeline",
        "Timeline of all nodes",
        "What happened when: roles, terms, links, stalls, refusals and outages on one axis?",
    ),
    ReportSpec(
        "throughput",
        "Throughput",
        "How much was written, by broker, topic, queue and time? What is hot, how large is it?",
    ),
    ReportSpec(
        "latency",
        "Latency from producer to store",
        "How long did messages travel before they were stored, and whose clock is wrong?",
    ),
    ReportSpec(
        "replication",
        "Replication",
        "How far behind were the slaves, when were they silent, and what did puts wait for them?",
    ),
    ReportSpec(
        "failovers",
        "Failovers and unavailability",
        "Which node was master when, how long was there none to write to, and what was rejected?",
    ),
    ReportSpec(
        "divergence",
        "Divergence",
        "Do these stores hold the same records where both hold any?",
    ),
    ReportSpec(
        "integrity",
        "Integrity",
        "Is anything damaged, missing or out of step between log, queues and index?",
    ),
    ReportSpec(
        "queues",
        "Queues and consumers",
        "Is work spread evenly, which groups are behind, and what failed, waits or hangs?",
    ),
    ReportSpec(
        "retention",
        "Retention",
        "How fast do the stores grow, and when is the disk full?",
    ),
    ReportSpec(
        "trace",
        "One message's way",
        "Where was this message stored, redelivered and consumed?",
    ),
)

REPORTS: Final = {spec.name: spec for spec in _SPECS}
"""Reports by name, in the order in which they are shown."""
