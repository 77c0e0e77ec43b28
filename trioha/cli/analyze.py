"""`trioha analyze`: questions about the past, answered from stores and journals on disk."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

import click

from trioha.analysis.choice import EngineName, choose_engine, lacking_packages
from trioha.analysis.engine import Engine, Window
from trioha.analysis.inputs import Inputs, open_inputs
from trioha.analysis.manifest import Manifest, ReportRecord
from trioha.analysis.output import PAGE, OutputDirectory, report_as_json
from trioha.analysis.reports import REPORTS
from trioha.analysis.results import ReportOptions, ReportSpec
from trioha.analysis.run import Analysis, missing_need, specs_named, views_of
from trioha.analysis.schema import AnalysisError
from trioha.analysis.spark.java import is_submitted
from trioha.cli.analyze_compare import EngineOpener, Other, add_comparison, other_run
from trioha.cli.analyze_explain import command as explain
from trioha.cli.analyze_export import command as export
from trioha.cli.failures import ExitCode
from trioha.cli.measures import Moment
from trioha.cli.output import output_option, print_json, print_styled, table
from trioha.cli.progress import TerminalProgress
from trioha.cli.report_text import report_lines
from trioha.errors import ConfigError
from trioha.words import what_there_is

_INTERRUPTED = "interrupted"


def _list_reports(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        click.echo(table(["report", "answers"], [[x.name, x.question] for x in REPORTS.values()]))
        context.exit()


class AnalyzeCommand(click.Group):
    """A command with arguments of its own, and `explain` and `export` beside them.

    The first word decides: these two are commands, everything else is a store or an option.
    """

    allow_interspersed_args = True

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        inner = self.commands.get(args[0]) if args else None
        if inner is None:
            return super().make_context(info_name, args, parent, **extra)
        ours = click.Context(self, info_name=info_name, parent=parent)
        return inner.make_context(args[0], args[1:], ours, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return click.Command.parse_args(self, ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        return click.Command.invoke(self, ctx)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        # A context of `explain` asks for what stands between both names: no store does.
        return super().get_params(ctx) if ctx.command is self else []

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return click.Command.collect_usage_pieces(self, ctx)


@click.command("analyze", cls=AnalyzeCommand, invoke_without_command=True)
@click.argument("stores", nargs=-1, metavar="STORE...")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Directory to make.")
@click.option(
    "--journal",
    "journals",
    multiple=True,
    metavar="DIR",
    help="A journal elsewhere than in a store. Repeatable.",
)
@click.option(
    "--report",
    "names",
    multiple=True,
    metavar="NAME",
    help="Only this report. Repeatable.  [default: all that the input allows]",
)
@click.option(
    "--list-reports",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_list_reports,
    help="Name the reports and exit.",
)
@click.option("--from", "from_ms", type=Moment(), metavar="TIME", help="From this time on.")
@click.option("--to", "to_ms", type=Moment(), metavar="TIME", help="Up to before this time.")
@click.option("--key", help="A message key to trace.")
@click.option("--id", "message_id", metavar="ID", help="A message id to trace.")
@click.option(
    "--engine",
    type=click.Choice(["auto", "local", "spark"]),
    default="auto",
    show_default=True,
    help="local: in this process, without Java. auto: spark with --master.",
)
@click.option("--master", metavar="URL", help="A Spark master.  [default: local[*]]")
@click.option(
    "--conf", "settings", multiple=True, metavar="KEY=VALUE", help="A Spark setting. Repeatable."
)
@click.option(
    "--compare",
    "other",
    type=Other(),
    metavar="OTHER",
    help="Another run's --out, or a window FROM..TO: its figures beside these.",
)
@click.option("--overwrite", is_flag=True, help="Replace results that --out already holds.")
@output_option
def command(
    stores: Sequence[str],
    out: Path,
    journals: Sequence[str],
    names: Sequence[str],
    from_ms: int | None,
    to_ms: int | None,
    key: str | None,
    message_id: str | None,
    engine: str,
    master: str | None,
    settings: Sequence[str],
    other: Path | Window | None,
    overwrite: bool,
    output: str,
) -> int:
    """Answer questions about the past from what lies on disk.

    STORE is a broker's store, or only its commitlog; trioha's, a Java broker's, running or not.
    Nothing in it is changed. A store's journal is found in it. Results: a summary here,
    report.html, and a Parquet file and JSON per report, with manifest.json. Times are UTC.

    \b
    trioha analyze /var/lib/trioha --out incident
    trioha analyze a/store b/store --out d --report divergence
    trioha analyze store --out o --from 2026-11-20T09:00 --to '1h ago'
    trioha analyze store --out o --key order-4711
    trioha analyze store --out after --compare before
    trioha analyze /mnt/stores/* --out o --master spark://head:7077
    trioha analyze --list-reports
    trioha analyze explain a/store b/store --key order-4711
    trioha analyze export store --out records

    Exit code 1: damage or divergence was found, or a report could not be made.
    """
    started = time.time()
    progress = TerminalProgress()
    specs = _specs(names)
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        raise click.UsageError("--from is not before --to")
    if not stores and not journals:
        raise click.UsageError("name a STORE, or a journal with --journal DIR")
    if lacking := lacking_packages():
        raise ConfigError(
            f"the analysis needs {', '.join(lacking)}; pip install 'trioha[analysis]'"
        )
    if engine == "local" and (master or settings):
        raise click.UsageError("--master and --conf are Spark's; --engine local has none")
    if is_submitted() or (master is not None and not master.startswith("local")):
        # Workers stand in directories of their own.
        stores = [os.path.abspath(path) for path in stores]
        journals = [os.path.abspath(path) for path in journals]
    try:
        inputs = open_inputs(stores, journals, Window(from_ms, to_ms))
    except AnalysisError as error:
        raise ConfigError(str(error)) from error
    options = ReportOptions(now_ms=int(started * 1000), key=key, message_id=message_id)
    if names:
        _check_needs(specs, inputs, options)
    chosen = choose_engine(engine, wants_master=bool(master or settings) or is_submitted())
    before = None if other is None else other_run(other)
    directory = OutputDirectory(out, overwrite=overwrite)
    directory.open()
    manifest = Manifest(inputs, {"name": chosen, "version": ""}, options.now_ms)
    with _kept(directory, manifest, progress):
        views = views_of(specs)
        with _engines(
            chosen, inputs, directory, manifest, progress, master, settings
        ) as open_engine:
            with open_engine(inputs, directory.scratch, views) as made:
                analysis = Analysis(
                    made, manifest, directory, lambda record: _tell(record, progress)
                )
                analysis.run(specs, options)
            if other is not None:
                add_comparison(other, before, specs, options, manifest, directory, open_engine)
        _conclude(manifest, started)
        directory.write_page(manifest)
        directory.finish(manifest)
    if output == "json":
        print_json(_as_json(manifest, out))
    else:
        _print(manifest, out)
    return _exit_code(manifest)


command.add_command(explain)
command.add_command(export)


def _specs(names: Sequence[str]) -> list[ReportSpec]:
    try:
        return specs_named(names)
    except KeyError as error:
        name = error.args[0]
        raise click.UsageError(f"no such report: {name}{what_there_is(name, REPORTS)}") from None


def _check_needs(specs: Sequence[ReportSpec], inputs: Inputs, options: ReportOptions) -> None:
    """A report asked for by name is not skipped in silence."""
    for spec in specs:
        lack = missing_need(spec, inputs, options)
        if lack is not None:
            raise click.UsageError(f"the report {spec.name} {lack}")


@contextlib.contextmanager
def _engines(
    chosen: EngineName,
    inputs: Inputs,
    directory: OutputDirectory,
    manifest: Manifest,
    progress: TerminalProgress,
    master: str | None,
    settings: Sequence[str],
) -> Iterator[EngineOpener]:
    """Yield a function that opens an engine over any window of the inputs."""
    if chosen == "local":
        from trioha.analysis.local_engine import LocalEngine

        manifest.engine = {"name": "local", "version": version("duckdb")}
        yield lambda of, scratch, views: LocalEngine(
            of, scratch=scratch, progress=progress, views=views
        )
        return
    from trioha.analysis.spark.session import open_session

    progress.say("trioha: starting Spark")
    with open_session(
        master=master,
        scratch=directory.scratch.absolute(),
        log=directory.partial / "spark.log",
        settings=_settings(settings),
        paths=[store.label for store in inputs.stores],
        bytes_total=inputs.bytes_total,
    ) as (session, info):
        manifest.engine = {
            "name": "spark",
            "version": info.version,
            "master": info.master,
            "parallelism": info.parallelism,
            "java": info.java,
        }
        # Only here: it needs pyspark, whose absence `open_session` tells in a sentence.
        yield lambda of, scratch, views: _on_spark(
            session, of, directory, scratch, progress, views, info.shares_scratch
        )


def _on_spark(
    session: Any,
    inputs: Inputs,
    directory: OutputDirectory,
    scratch: Path,
    progress: TerminalProgress,
    views: Collection[str],
    shares_scratch: bool,
) -> contextlib.AbstractContextManager[Engine]:
    """Workers that see our directory decode into it; else every query is a job of theirs."""
    from trioha.analysis.local_engine import LocalEngine
    from trioha.analysis.spark.engine import SparkEngine
    from trioha.analysis.spark.jobs import Jobs

    if shares_scratch:
        decode = Jobs(session, inputs.note).run_tasks
        return LocalEngine(
            inputs, scratch=scratch, progress=progress, views=views, run_tasks=decode
        )
    inputs.note(
        f"the workers do not see {directory.final}, so every query reads the stores anew;"
        " an --out on storage that they share is faster"
    )
    return SparkEngine(session, inputs, scratch=scratch, progress=progress)


def _settings(pairs: Sequence[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.UsageError(f"--conf {pair} is not KEY=VALUE")
        found[key.strip()] = value
    return found


@contextlib.contextmanager
def _kept(
    directory: OutputDirectory, manifest: Manifest, progress: TerminalProgress
) -> Iterator[None]:
    """Keep the reports of an analysis that ends early; its page says that they are not all."""
    try:
        yield
    except BaseException as error:
        progress.end()
        if isinstance(error, OSError) and error.errno and error.filename is None:
            error.filename = str(directory.final)  # a write does not say where it went
        if not any(record.report is not None for record in manifest.records):
            directory.discard()
            raise
        manifest.reason = (
            _INTERRUPTED if isinstance(error, KeyboardInterrupt) else _reason(error, directory)
        )
        with contextlib.suppress(OSError):
            manifest.finished_ms = int(time.time() * 1000)
            directory.write_page(manifest)
        with contextlib.suppress(OSError):
            directory.abandon(manifest)
        progress.say(f"trioha: what was made until then is in {directory.partial}, marked partial")
        raise


def _reason(error: BaseException, directory: OutputDirectory) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{directory.final}: {error.strerror}"
    return str(error) or type(error).__name__


def _conclude(manifest: Manifest, started: float) -> None:
    failed = [record.name for record in manifest.records if record.error is not None]
    manifest.partial = bool(failed)
    manifest.reason = f"not made: {', '.join(failed)}" if failed else None
    manifest.finished_ms = max(int(time.time() * 1000), int(started * 1000))


def _tell(record: ReportRecord, progress: TerminalProgress) -> None:
    if record.error is not None:
        progress.say(f"trioha: {record.name}: {record.error}")
    elif record.skipped is not None:
        progress.say(f"trioha: note: {record.name}: left out, it {record.skipped}")


def _print(manifest: Manifest, out: Path) -> None:
    from trioha.analysis.replicas import folded

    width = get_terminal_size().columns if sys.stdout.isatty() else None
    stores = [store.label for store in manifest.inputs.stores]
    for record in manifest.records:
        if record.report is not None:
            for line, style in report_lines(folded(record.report, stores), width):
                print_styled(line, **style)
            click.echo()
    for note in manifest.inputs.notes:
        click.echo(f"trioha: note: {note}", err=True)
    partial = f", partial ({manifest.reason})" if manifest.partial else ""
    click.echo(f"{out / PAGE}{partial}")


def _as_json(manifest: Manifest, out: Path) -> dict[str, Any]:
    answers = {
        record.name: report_as_json(record.report)
        for record in manifest.records
        if record.report is not None
    }
    return {"out": str(out), "manifest": manifest.as_json(), "reports": answers}


def _exit_code(manifest: Manifest) -> int:
    reports = [record.report for record in manifest.records if record.report is not None]
    found = any(report.exit_code for report in reports)
    return ExitCode.FAILED if found or manifest.partial else ExitCode.OK
