"""The page's frame: summary, contents, a section per report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from trioha.analysis.engine import Window
from trioha.analysis.page.charts import render_chart
from trioha.analysis.page.formats import (
    format_bytes,
    format_duration,
    format_number,
    format_time,
)
from trioha.analysis.page.markup import element, text
from trioha.analysis.page.style import style_sheet
from trioha.analysis.page.tables import render_table
from trioha.analysis.results import Finding, Report, Severity


@attrs.frozen(kw_only=True)
class PageMeta:
    """The head of the page: what was analysed, by what, how it ended. Milliseconds since 1970."""

    stores: Sequence[str]
    journals: Sequence[str] = ()
    engine: str
    """Engine in words: "local (DuckDB 1.4)", "Spark 4.3.0 on local[2]"."""
    version: str
    """Version of trioha."""
    created_ms: int
    elapsed_ms: int | None = None
    window: Window = Window()
    """The time that the user asked for."""
    first_ms: int | None = None
    last_ms: int | None = None
    """Times of the first and the last record found."""
    records: int | None = None
    bytes: int | None = None
    notes: Sequence[str] = ()
    partial: str = ""
    """Reason why the results are not whole; empty when they are."""
    skipped: Mapping[str, str] = attrs.field(factory=dict)
    """Reports that were not made: name -> reason."""


HEADLINES_MAX = 5
"""Findings of one report in the head of the page."""
_ORDER: tuple[Severity, ...] = ("error", "warning", "info")
_WORDS = {"error": "✖ ERROR", "warning": "▲ WARNING", "info": "● NOTE"}
_SINGULARS = {"error": "error", "warning": "warning", "info": "note"}
# Nothing may be loaded and nothing may run, whatever a hostile name slips in.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)


def render_page(reports: Sequence[Report], meta: PageMeta) -> str:
    """The whole file. Equal input gives equal bytes."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{text(_title(meta))}</title><style>{style_sheet()}</style></head><body>\n"
        f"{_header(reports, meta)}\n<main>{_contents(reports)}\n"
        + "\n".join(_section(report) for report in reports)
        + f"</main>\n{_footer(meta)}\n</body></html>\n"
    )


def _title(meta: PageMeta) -> str:
    names = ", ".join(meta.stores[:3]) or ", ".join(meta.journals[:3])
    return f"Log analysis: {names}" if names else "Log analysis"


def _header(reports: Sequence[Report], meta: PageMeta) -> str:
    partial = (
        element("p", element("strong", "Partial results. "), text(meta.partial), class_="partial")
        if meta.partial
        else ""
    )
    items = [
        item
        for severity in ("error", "warning")
        for report in _apart(reports)
        for item in _headlines(report, severity)
    ]
    return element(
        "header",
        element("h1", "What the logs say"),
        element("p", text(_subtitle(meta)), class_="sub"),
        _verdict(reports),
        partial,
        element("ul", *items, class_="findings") if items else "",
        _facts(meta),
    )


def _apart(reports: Sequence[Report]) -> list[Report]:
    """Reports without those whose findings another one of them tells."""
    names = {report.name for report in reports}
    return [report for report in reports if report.told_by not in names]


def _headlines(report: Report, severity: Severity) -> list[str]:
    """A report's findings of one severity for the head of the page: the first few of the report,
    errors before warnings, and how many more its section has."""
    ordered = [f for each in ("error", "warning") for f in report.findings if f.severity == each]
    shown = [f for f in ordered[:HEADLINES_MAX] if f.severity == severity]
    more = sum(f.severity == severity for f in ordered) - len(shown)
    source = element("a", text(report.title), href=f"#{report.name}")
    items = [_finding(finding, source) for finding in shown]
    if more:
        items.append(_finding(Finding(severity, f"{_counted(more, 'finding')} more"), source))
    return items


def _subtitle(meta: PageMeta) -> str:
    return f"trioha {meta.version}, {format_time(meta.created_ms // 1000 * 1000)} UTC"


def _verdict(reports: Sequence[Report]) -> str:
    counts = {
        severity: sum(f.severity == severity for each in _apart(reports) for f in each.findings)
        for severity in _ORDER
    }
    failed = [report.title for report in _apart(reports) if report.exit_code]
    said = [_counted(count, _SINGULARS[severity]) for severity, count in counts.items() if count]
    found = ", ".join(said) or "no findings"
    if failed:
        css, head = "error", "✖ Act on this"
        tail = f"exit status 1, because of: {', '.join(failed)}"
    elif counts["error"] or counts["warning"]:
        css, head, tail = "warning", "▲ Look at this", "exit status 0"
    else:
        css, head, tail = "good", "✔ Nothing to worry about", "exit status 0"
    return element(
        "div",
        element("strong", head),
        element("span", text(f"{found} in {_counted(len(reports), 'report')}; {tail}")),
        class_=f"verdict {css}",
    )


def _facts(meta: PageMeta) -> str:
    rows: list[tuple[str, str]] = []
    if meta.stores:
        rows.append(("Stores", "; ".join(meta.stores)))
    if meta.journals:
        rows.append(("Journals", "; ".join(meta.journals)))
    rows.append(("Window", _window(meta)))
    if meta.first_ms is not None and meta.last_ms is not None:
        span = format_duration(meta.last_ms - meta.first_ms)
        found = f"{format_time(meta.first_ms)} to {format_time(meta.last_ms)} UTC ({span})"
        rows.append(("Records from", found))
    if meta.records is not None:
        size = "" if meta.bytes is None else f", {format_bytes(meta.bytes)}"
        rows.append(("Read", f"{format_number(meta.records)} records{size}"))
    elapsed = "" if meta.elapsed_ms is None else f", {format_duration(meta.elapsed_ms)}"
    rows.append(("Engine", f"{meta.engine}{elapsed}"))
    rows += [("Note", note) for note in meta.notes]
    rows += [(f"Without {name}", why) for name, why in meta.skipped.items()]
    return element(
        "dl",
        *(element("dt", text(name)) + element("dd", text(value)) for name, value in rows),
        class_="facts",
    )


def _window(meta: PageMeta) -> str:
    begin, end = meta.window.from_ms, meta.window.to_ms
    if begin is None and end is None:
        return "everything"
    parts = []
    if begin is not None:
        parts.append(f"from {format_time(begin)}")
    if end is not None:
        parts.append(f"before {format_time(end)}")
    return " ".join(parts) + " UTC"


def _contents(reports: Sequence[Report]) -> str:
    if len(reports) < 2:
        return ""
    items = [
        element("li", element("a", text(report.title), href=f"#{report.name}"), _badge(report))
        for report in reports
    ]
    return element("nav", element("ol", *items), aria_label="Reports")


def _badge(report: Report) -> str:
    for severity in ("error", "warning"):
        count = sum(finding.severity == severity for finding in report.findings)
        if count:
            sign = _WORDS[severity][0]
            said = f"{sign} {_counted(count, _SINGULARS[severity])}"
            return " " + element("span", said, class_=severity)
    return ""


def _section(report: Report) -> str:
    ordered = sorted(report.findings, key=lambda finding: _ORDER.index(finding.severity))
    charts = [render_chart(chart, f"{report.name}-c{at}") for at, chart in enumerate(report.charts)]
    tables = [render_table(table, f"{report.name}-t{at}") for at, table in enumerate(report.tables)]
    return element(
        "section",
        element("h2", text(report.title)),
        element("p", text(report.question), class_="question"),
        element("ul", *(_finding(f) for f in ordered), class_="findings") if ordered else "",
        *charts,
        *tables,
        id=report.name,
    )


def _finding(finding: Finding, source: str = "") -> str:
    words = text(finding.text) + (f" ({source})" if source else "")
    return element(
        "li",
        element("b", _WORDS[finding.severity]),
        element("span", words),
        class_=finding.severity,
    )


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _footer(meta: PageMeta) -> str:
    return element(
        "footer",
        text(
            f"Made by trioha {meta.version}. Times are UTC by the clocks of the nodes. "
            "This file loads nothing and runs nothing."
        ),
    )
