"""`trioha analyze export`: records as Parquet by day, or as a Delta table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from trioha.analysis.choice import lacking_packages
from trioha.analysis.schema import AnalysisError
from trioha.cli.failures import ExitCode
from trioha.cli.measures import Moment
from trioha.cli.output import output_option, print_json
from trioha.cli.progress import TerminalProgress
from trioha.errors import ConfigError


@click.command("export")
@click.argument("stores", nargs=-1, required=True, metavar="STORE...")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Directory to make.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["parquet", "delta"]),
    default="parquet",
    show_default=True,
    help="delta: needs the package deltalake.",
)
@click.option("--headers", is_flag=True, help="Without tags, keys, properties and bodies.")
@click.option("--columns", metavar="NAMES", help="Only these, with commas between them.")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only this. Repeatable.")
@click.option("--from", "from_ms", type=Moment(), metavar="TIME", help="From this time on.")
@click.option("--to", "to_ms", type=Moment(), metavar="TIME", help="Up to before this time.")
@output_option
def command(
    stores: Sequence[str],
    out: Path,
    kind: str,
    headers: bool,
    columns: str | None,
    topics: Sequence[str],
    from_ms: int | None,
    to_ms: int | None,
    output: str,
) -> int:
    """Write the records of logs as a table, partitioned by the day they were stored (UTC).

    STORE is a broker's store, a directory of stores, or a path in other storage (s3a://…).
    Nothing in it is changed. A store in a directory named export is written ./export.

    \b
    trioha analyze export /var/lib/trioha --out records
    trioha analyze export /mnt/stores --out headers --headers --format delta
    """
    if lacking := lacking_packages():
        raise ConfigError(
            f"the analysis needs {', '.join(lacking)}; pip install 'trioha[analysis]'"
        )
    from trioha.analysis.export import export
    from trioha.analysis.scan import ScanFilter
    from trioha.analysis.store_files import open_stores

    filters = ScanFilter(topics=frozenset(topics) or None, store_ms_from=from_ms, store_ms_to=to_ms)
    try:
        done = export(
            [store for path in stores for store in open_stores(path)],
            out,
            kind=kind,
            detail="headers" if headers else "full",
            columns=[name.strip() for name in (columns or "").split(",") if name.strip()],
            filters=filters,
            progress=TerminalProgress(),
        )
    except AnalysisError as error:
        raise ConfigError(str(error)) from error
    if output == "json":
        print_json({"out": str(out), "records": done.records, "damaged": done.damaged})
        return ExitCode.OK
    click.echo(f"{done.records} records in {out}")
    if done.damaged:
        click.echo(
            f"trioha: note: {done.damaged} damaged stretches hold no record;"
            " trioha analyze --report integrity shows them",
            err=True,
        )
    return ExitCode.OK
