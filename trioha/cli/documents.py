"""Runs the jobs of the nouns and prints what they return: for people, or as a document.

Every command of a noun takes ``-o table|wide|json|yaml``. The document is the job's result, field
for field; `docs/schemas` has its schema. A command that changes something makes its plan, shows it,
asks where something is lost, and carries it out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import attrs
import click
import trio

from trioha.cli.client_options import namesrv_option, secret_option, timeout_option
from trioha.cli.confirmation import check_confirmable, confirm_by_name
from trioha.cli.decorators import all_of
from trioha.cli.failures import ExitCode
from trioha.cli.output import print_json
from trioha.client.cluster import Cluster, ClusterConfig, open_cluster
from trioha.client.driving import drive
from trioha.failover.asking import Flow
from trioha.jobs.telling import JobScope

T = TypeVar("T")
DOCUMENTS = ("json", "yaml")

document_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", *DOCUMENTS]),
    default="table",
    show_default=True,
    help="For people, with more columns, or for programs.",
)
noun_options = all_of(namesrv_option, secret_option, timeout_option, document_option)
dry_run_option = click.option("--dry-run", is_flag=True, help="Show the plan and change nothing.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask for the name to be typed.")
force_option = click.option("--force", is_flag=True, help="Go on where the plan says no.")
change_options = all_of(dry_run_option, noun_options, click.pass_context)
loss_options = all_of(dry_run_option, yes_option, noun_options, click.pass_context)


class JobPlan(attrs.AttrsInstance, Protocol):
    """Fields that all plans of changes have."""

    @property
    def loses(self) -> list[str]: ...
    @property
    def refusals(self) -> list[str]: ...
    @property
    def notes(self) -> list[str]: ...


P = TypeVar("P", bound=JobPlan)


def run_job(job: Callable[[JobScope], Flow[T]], namesrv: str, timeout_s: float) -> T:
    """Run a job on the cluster of these name servers and return its result."""
    config = ClusterConfig(connect_timeout_s=timeout_s, request_timeout_s=timeout_s)

    async def run(cluster: Cluster) -> T:
        return await drive(job(JobScope(cluster.namesrvs, timeout_s)), cluster)

    return in_cluster(namesrv, config, run)


def in_cluster(namesrv: str, config: ClusterConfig, work: Callable[[Cluster], Awaitable[T]]) -> T:
    """Open connections to a cluster, await the work, and return its result."""

    async def run() -> T:
        async with open_cluster(namesrv, config) as cluster:
            return await work(cluster)

    return trio.run(run, strict_exception_groups=True)


def show(document: attrs.AttrsInstance, output: str, in_words: Callable[[bool], str]) -> None:
    """Print a job's result; `in_words` makes the text and is told whether it may be wide.

    The command ends with exit code 4 when a broker did not answer, and the result says so.
    """
    silent: list[str] = getattr(document, "silent", [])
    if output in DOCUMENTS:
        print_document(document, output)
    else:
        click.echo("\n".join([in_words(output == "wide"), *(f"! {one}" for one in silent)]))
    if silent:
        click.get_current_context().exit(ExitCode.UNREACHABLE)


def print_document(document: attrs.AttrsInstance, output: str) -> None:
    """Print a job's result as JSON or YAML."""
    plain = attrs.asdict(document)
    if output == "json":
        print_json(plain)
        return
    import yaml

    click.echo(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True).rstrip())


def run_change(
    ctx: click.Context,
    name: str,
    plan_job: Callable[[JobScope], Flow[P]],
    carry_out: Callable[[JobScope, P], Flow[P]],
    in_words: Callable[[P], str],
    *,
    namesrv: str,
    timeout_s: float,
    output: str,
    dry_run: bool,
    yes: bool = False,
    force: bool = False,
) -> P:
    """Show the plan, ask for `name` to be typed if something is lost or forced, carry it out.

    The command ends with exit code 1 when the plan is refused, or another name is typed.
    """
    plan = run_job(plan_job, namesrv, timeout_s)
    refused = bool(plan.refusals) and not force
    is_document = output in DOCUMENTS
    if refused or dry_run:
        show(plan, output, lambda wide: plan_in_words(plan, in_words))
        ctx.exit(ExitCode.FAILED if refused else ExitCode.OK)
    if plan.loses or plan.refusals:
        check_confirmable(yes, dry_run, output, f"type {name}")
        if not is_document:
            click.echo(plan_in_words(plan, in_words))
        if not yes:
            confirm_by_name(ctx, name)
    done = run_job(lambda scope: carry_out(scope, plan), namesrv, timeout_s)
    if is_document:
        print_document(done, output)
    else:
        click.echo(in_words(done))
        for note in done.notes:
            click.echo(f"! {note}")
    return done


def plan_in_words(plan: P, in_words: Callable[[P], str]) -> str:
    """Return the plan, what it loses, and what speaks against it."""
    lines = [in_words(plan)]
    lines += [f"  data loss  {loss}" for loss in plan.loses]
    lines += [f"! {refusal}" for refusal in plan.refusals]
    lines += [f"! {note}" for note in plan.notes]
    return "\n".join(lines)


def columns(
    wide: bool, head: tuple[str, ...], extra: tuple[str, ...], rows: list[tuple[Any, ...]]
) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Return head and rows; the `extra` columns, which come last, only if `wide`."""
    if wide:
        return head + extra, rows
    return head, [row[: len(head)] for row in rows]
