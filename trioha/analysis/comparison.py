"""The figures of two runs side by side: before, after, and what got worse by more than its bound.

A run is what `trioha analyze` made, read from its directory or made for another window. Figures
are matched by what they are of: a store, broker, link, group. Stores that have other names in the
two runs are matched by the order in which they were given, if there are as many.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs

from trioha.analysis.figures import FIGURES, Figure, Key, Values, figures_made, values_of
from trioha.analysis.manifest import MANIFEST, NotOurs, check_ours
from trioha.analysis.page.formats import format_value
from trioha.analysis.reports.tables import table
from trioha.analysis.reports.words import count_of
from trioha.analysis.results import Column, ColumnKind, Finding, Report, Table
from trioha.errors import ConfigError

NAME, TITLE = "compare", "Comparison"
WORSE_MAX = 4
"""Figures that got worse and have a finding each; the others share one."""
Verdict = Literal["worse", "within its bound", "better", "same", "not judged"]
_ORDER: tuple[Verdict, ...] = ("worse", "better", "within its bound", "not judged", "same")


@attrs.frozen
class Run:
    """The reports of one run, and what they are of."""

    name: str
    """Name in words: a directory, or a window."""
    stores: Sequence[str]
    reports: Sequence[Report]


@attrs.frozen
class Difference:
    """One figure in both runs. `before` or `after` is None where a run does not know it."""

    figure: Figure
    of: str
    kind: ColumnKind
    before: float | None
    after: float | None

    @property
    def change(self) -> float | None:
        if self.before is None or self.after is None:
            return None
        return self.after - self.before

    @property
    def bound(self) -> float | None:
        """Largest change for the worse that is allowed; None for a figure that is not judged."""
        if self.figure.better == "neither" or self.before is None:
            return None
        return self.figure.bound.of(self.before)

    @property
    def verdict(self) -> Verdict:
        if self.change is None or self.bound is None:
            return "not judged"
        if not self.change:
            return "same"
        worse = self.change if self.figure.better == "lower" else -self.change
        if worse < 0:
            return "better"
        # Shares are sums of floats: a difference in the last digit is none.
        return "worse" if worse > self.bound * (1 + 1e-9) else "within its bound"


def read_run(directory: Path) -> Run:
    """The run whose results lie in a directory.

    Errors: NotOurs when `trioha analyze` did not make it; ConfigError when it cannot be read.
    """
    try:
        check_ours(directory)
    except NotOurs:
        raise NotOurs(
            f"{directory} holds no results of `trioha analyze`; name an --out that has a {MANIFEST}"
        ) from None
    try:
        manifest = json.loads((directory / MANIFEST).read_text())
        reports = [
            _report(json.loads((directory / entry["name"] / "report.json").read_text()))
            for entry in manifest["reports"]
            if "error" not in entry and "skipped" not in entry
        ]
        stores = [str(store["label"]) for store in manifest["stores"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"the results in {directory} cannot be read ({error}); make them again"
        ) from error
    return Run(str(directory), stores, reports)


def _report(document: Mapping[str, Any]) -> Report:
    """A report from its JSON; charts are not compared and stay there."""
    tables = []
    for each in document["tables"]:
        columns = [Column(**column) for column in each["columns"]]
        rows = [tuple(row[column.name] for column in columns) for row in each["rows"]]
        tables.append(Table(each["name"], each["title"], columns, rows, each.get("note", "")))
    return Report(
        name=document["name"],
        title=document["title"],
        question=document["question"],
        tables=tables,
        findings=[Finding(**finding) for finding in document["findings"]],
        exit_code=document["exit_code"],
    )


def comparison(before: Run, after: Run) -> Report:
    """The report that has both runs side by side, with a finding for what got worse."""
    differences = sorted(_differences(before, after), key=lambda each: _ORDER.index(each.verdict))
    return Report(
        name=NAME,
        title=TITLE,
        question=f"What got better or worse since {before.name}?",
        findings=list(_findings(before, after, differences)),
        tables=[_table(differences)],
    )


def _differences(before: Run, after: Run) -> Iterator[Difference]:
    names = _store_names(before, after)
    earlier = {report.name: report for report in before.reports}
    later = {report.name: report for report in after.reports}
    for figure in FIGURES:
        if figure.report not in earlier or figure.report not in later:
            continue
        old = values_of(figure, earlier[figure.report])
        new = values_of(figure, later[figure.report])
        if old is None and new is None:
            continue
        kind = new.kind if new is not None else old.kind if old is not None else "number"
        was = _renamed(figure, old, names) if old is not None else {}
        now = dict(new.by_key) if new is not None else {}
        absent = 0.0 if figure.is_count else None
        for key in dict.fromkeys([*now, *was]):
            of = ", ".join(str(part) for part in key)
            yield Difference(figure, of, kind, was.get(key, absent), now.get(key, absent))


def _store_names(before: Run, after: Run) -> Mapping[str, str]:
    """A store's name before -> its name after."""
    if set(before.stores) == set(after.stores) or len(before.stores) != len(after.stores):
        return {}
    return dict(zip(before.stores, after.stores, strict=True))


def _renamed(figure: Figure, values: Values, names: Mapping[str, str]) -> dict[Key, float | None]:
    is_store = [name in ("store", "a", "b") for name in figure.keys]
    return {
        tuple(
            names.get(str(part), part) if renames else part
            for part, renames in zip(key, is_store, strict=True)
        ): value
        for key, value in values.by_key.items()
    }


def _findings(before: Run, after: Run, differences: Sequence[Difference]) -> Iterator[Finding]:
    worse = [each for each in differences if each.verdict == "worse"]
    for each in worse[:WORSE_MAX]:
        yield Finding.warning(_say(each))
    if len(worse) > WORSE_MAX:
        yield Finding.warning(
            f"{count_of(len(worse) - WORSE_MAX, 'more figure')} got worse by more than "
            f"{'its bound' if len(worse) == WORSE_MAX + 1 else 'their bounds'}: see the table."
        )
    better = sum(each.verdict == "better" for each in differences)
    judged = sum(each.verdict != "not judged" for each in differences)
    yield Finding.info(
        f"Before is {before.name}, after is {after.name}: of {count_of(judged, 'figure')} that "
        f"have a bound {len(worse)} got worse by more than it, and {better} got better."
    )
    if names := _store_names(before, after):
        pairs = ", ".join(f"{old} with {new}" for old, new in names.items())
        yield Finding.info(f"Stores are compared in the order in which they were given: {pairs}.")
    made_before, made_after = figures_made(before.reports), figures_made(after.reports)
    for missing, run in ((made_after - made_before, before), (made_before - made_after, after)):
        if missing:
            yield Finding.info(f"Not compared, for {run.name} has none: {_listed(missing)}.")


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def _say(each: Difference) -> str:
    rose = "rose" if (each.change or 0) > 0 else "fell"
    name = each.figure.name[0].upper() + each.figure.name[1:]
    return (
        f"{name} of {each.of} {rose} from {_shown(each, each.before)} to "
        f"{_shown(each, each.after)}: worse by more than its bound of "
        f"{_amount(each, each.bound)} ({each.figure.report})."
    )


def _shown(each: Difference, value: float | None) -> str:
    if each.kind in ("integer", "duration", "bytes") and value is not None:
        value = round(value)
    return format_value(value, each.kind)


def _amount(each: Difference, value: float | None) -> str:
    """A difference of figures; that of two shares is in percentage points."""
    if each.kind == "share" and value is not None:
        return f"{format_value(100 * value, 'number')} points"
    return _shown(each, value)


def _table(differences: Sequence[Difference]) -> Table:
    return table(
        "figures",
        "Figures side by side, what got worse first; a figure may get worse by its bound; the last "
        "columns are the same in milliseconds, bytes, shares or counts",
        "verdict report figure of before after difference bound before_value:number "
        "after_value:number difference_value:number bound_value:number",
        [
            {
                "verdict": each.verdict,
                "report": each.figure.report,
                "figure": each.figure.name,
                "of": each.of,
                "before": _shown(each, each.before),
                "after": _shown(each, each.after),
                "difference": _say_change(each),
                "bound": _amount(each, each.bound),
                "before_value": each.before,
                "after_value": each.after,
                "difference_value": each.change,
                "bound_value": each.bound,
            }
            for each in differences
        ],
    )


def _say_change(each: Difference) -> str:
    """``1.2 s more``: a text that began with a sign would be a formula to a spreadsheet."""
    if not each.change:
        return _shown(each, each.change)
    return f"{_amount(each, abs(each.change))} {'more' if each.change > 0 else 'less'}"
