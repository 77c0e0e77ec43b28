"""Any table as CSV or JSON, and the screen as SVG: where it goes and how it is named."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trioha.errors import TriohaError
from trioha_console.arrange import Shape, value_of
from trioha_console.cells import Row

FORMATS = ("csv", "json")


def table_text(rows: Sequence[Row], shape: Shape[Row], form: str) -> str:
    """Return all columns, those without room on the screen included, as values, not as words."""
    titles = [column.title for column in shape.columns]
    table = [[_plain(value_of(column)(row)) for column in shape.columns] for row in rows]
    if form == "json":
        documents = [dict(zip(titles, values, strict=True)) for values in table]
        return json.dumps(documents, indent=2, ensure_ascii=False) + "\n"
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(titles)
    # A value that is not known is an empty field, not a zero.
    writer.writerows([["" if value is None else value for value in values] for values in table])
    return out.getvalue()


def write_file(text: str, path: str, name: str, suffix: str, wall_ms: int) -> Path:
    """Write where `path` says, or to a name of its own in the working directory.

    Errors: TriohaError with the path and the reason.
    """
    target = Path(path).expanduser() if path else Path(default_name(name, suffix, wall_ms))
    try:
        target.write_text(text)
    except OSError as error:
        raise TriohaError(f"{target}: {error.strerror or error}") from error
    return target


def default_name(name: str, suffix: str, wall_ms: int) -> str:
    """``trioha-replication-20261120-093105.csv``"""
    moment = datetime.fromtimestamp(wall_ms / 1000, UTC)
    return f"trioha-{name}-{moment:%Y%m%d-%H%M%S}.{suffix}"


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, int | float | str):
        return value
    if isinstance(value, tuple | list):
        return " ".join(str(one) for one in value if one != "")
    return str(value)
