"""A monitoring plugin's one line: status, what is wrong, performance data.

The form is the Monitoring Plugins guidelines':

    NAME STATUS - text | 'label'=value[UOM];warn;crit;min
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trioha.watch.alerts import AlertLevel, Verdict
from trioha.watch.rules import Unit

OK, WARNING, CRITICAL, UNKNOWN = 0, 1, 2, 3
NAMES = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
_PROBLEMS_MAX = 5
_PERFORMANCE_MAX = 200
_MEASURES = {Unit.BYTES: "B", Unit.SECONDS: "s", Unit.RATIO: "%", Unit.COUNT: "", Unit.FLAG: ""}


def status_of(verdicts: Sequence[Verdict], unknown: Sequence[str]) -> int:
    """The exit code: critical before warning before unknown before ok."""
    worst = max((verdict.level for verdict in verdicts if verdict.level), default=AlertLevel.OK)
    if worst is AlertLevel.OK:
        return UNKNOWN if unknown else OK
    return CRITICAL if worst is AlertLevel.CRIT else WARNING


def problems_of(verdicts: Sequence[Verdict], unknown: Sequence[str]) -> list[str]:
    """A sentence for everything that is wrong or not known, the worst first."""
    wrong = [verdict for verdict in verdicts if verdict.level]
    wrong.sort(key=lambda verdict: -(verdict.level or 0))
    return [verdict.reading.text for verdict in wrong] + list(unknown)


def line(area: str, verdicts: Sequence[Verdict], unknown: Sequence[str], all_well: str) -> str:
    """The whole line; `all_well` stands in it when nothing is wrong."""
    problems = problems_of(verdicts, unknown)
    text = "; ".join(problems[:_PROBLEMS_MAX]) or all_well
    if len(problems) > _PROBLEMS_MAX:
        text += f"; and {len(problems) - _PROBLEMS_MAX} more"
    # A bar begins the performance data, a line break ends the line: neither may come from a node.
    text = " ".join(text.replace("|", "/").split())
    status = NAMES[status_of(verdicts, unknown)]
    data = " ".join(_performance(verdict) for verdict in _measured(verdicts)[:_PERFORMANCE_MAX])
    return f"TRIOHA {area.upper()} {status} - {text}{f' | {data}' if data else ''}"


def document(
    area: str, verdicts: Sequence[Verdict], unknown: Sequence[str], all_well: str
) -> dict[str, Any]:
    """The same for programs."""
    code = status_of(verdicts, unknown)
    return {
        "check": area,
        "status": NAMES[code],
        "code": code,
        "problems": problems_of(verdicts, unknown),
        "summary": all_well,
        "readings": [
            {
                "rule": verdict.rule.name,
                "subject": verdict.reading.subject,
                "value": verdict.reading.value,
                "unit": verdict.rule.unit.value,
                "warn": verdict.rule.warn,
                "crit": verdict.rule.crit,
                "level": None if verdict.level is None else NAMES[verdict.level],
            }
            for verdict in verdicts
        ],
    }


def _measured(verdicts: Sequence[Verdict]) -> list[Verdict]:
    return [
        verdict
        for verdict in verdicts
        if verdict.rule.unit is not Unit.FLAG and verdict.reading.value is not None
    ]


def _performance(verdict: Verdict) -> str:
    rule = verdict.rule
    label = f"{verdict.reading.subject} {rule.name}".replace("'", "").replace("=", " ")
    scale = 100 if rule.unit is Unit.RATIO else 1
    numbers = [
        "" if value is None else f"{round(value * scale, 3):.15g}"
        for value in (verdict.reading.value, rule.warn, rule.crit)
    ]
    value, warn, crit = numbers
    return f"'{label}'={value}{_MEASURES[rule.unit]};{warn};{crit};0"
