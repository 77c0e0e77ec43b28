"""`trioha bundle`: everything that a person elsewhere needs to understand an incident."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import click
import trio

from trioha import __version__
from trioha.cli.bundle_file import BundleFile
from trioha.cli.client_options import chosen_context, namesrv_option, timeout_option
from trioha.cli.doctor import checks
from trioha.cli.measures import Moment
from trioha.cli.output import output_option, print_json
from trioha.cli.progress import TerminalProgress
from trioha.cli.record import recording_facts
from trioha.cli.version import version_facts
from trioha.client.evidence import Evidence, NodeEvidence, gather
from trioha.contexts import load_contexts
from trioha.errors import TriohaError
from trioha.journal.file import Damage, Event, journal_files, read_journal
from trioha.log_lines import rfc3339
from trioha.watch.alerts import judge
from trioha.watch.recording import open_recording
from trioha.watch.rules import Area, Rule
from trioha.watch.snapshot import ClusterSnapshot
from trioha.words import size_in_words

_README = """\
An incident bundle of trioha. manifest.json lists every file with its sum, and what is missing.

cluster/answers.json     one round of answers of every node, as the console would see it
cluster/alerts.json      the alert rules held against them
nodes/NAME@ADDRESS/      what each node says of itself: status, config with origins, tasks, journal
journals/                journals from folders on the machine that made this
recordings/              `trioha console --replay FILE`, `trioha record --info FILE`
screenshots/             the console's screens at that moment
machine/                 `trioha version` and `trioha doctor` of the machine that made this

Secrets are taken out: of settings by their names, of texts where a name stands beside a value.
Topics, groups, addresses and the names of hosts are in it; message bodies are not.
"""


@click.command("bundle")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The .tar.gz to write.",
)
@namesrv_option
@click.option("--offline", is_flag=True, help="Ask no node; pack only what is given here.")
@click.option(
    "--recording",
    "recordings",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    help="A recording to pack; may be given again.",
)
@click.option(
    "--journal",
    "journals",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    multiple=True,
    metavar="DIR",
    help="A journal, or the store it lies in, of a node that is gone; may be given again.",
)
@click.option(
    "--since",
    "since_wall_ms",
    type=Moment(),
    default="1d ago",
    show_default=True,
    help="Events from then on.",
)
@click.option("--overwrite", is_flag=True, help="Replace the file if it is there.")
@timeout_option
@output_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    out: Path,
    namesrv: str,
    offline: bool,
    recordings: Sequence[Path],
    journals: Sequence[Path],
    since_wall_ms: int,
    overwrite: bool,
    timeout_s: float,
    output: str,
) -> None:
    """Pack what is known of an incident into one file, without secrets.

    Every node is asked for its status, its settings, its tasks and its journal; recordings and the
    journals of nodes that are gone come from this machine. What could not be had is in the
    manifest and told on stderr; that is no failure.

    \b
    trioha bundle --out incident.tar.gz -n 127.0.0.1:9876
    trioha bundle --out incident.tar.gz --context prod --recording night.trioha --since '2h ago'
    trioha bundle --out dead.tar.gz --offline --journal /var/lib/trioha/a
    """
    if out.exists() and not overwrite:
        raise click.ClickException(
            f"{out} is there already; --overwrite replaces it, or name another file"
        )
    context = chosen_context(ctx)
    rules = load_contexts(os.environ).rules if context is None else context.rules
    evidence, progress = None, TerminalProgress()
    if not offline:
        evidence = trio.run(_gather, namesrv, timeout_s, since_wall_ms, progress)
    notes: list[str] = []
    wall_ms = int(time.time() * 1000)
    with BundleFile(out, wall_ms // 1000) as bundle:
        bundle.add_text("README.txt", _README)
        steps: list[Callable[[], Iterable[str]]] = []
        if evidence is not None:
            steps.append(partial(_pack_cluster, bundle, evidence, rules))
        steps += [partial(_pack_journal, bundle, one, since_wall_ms) for one in journals]
        steps += [partial(_pack_recording, bundle, one) for one in recordings]
        steps.append(partial(_pack_screenshots, bundle, evidence, recordings, rules))
        steps.append(partial(_pack_machine, bundle))
        progress.begin("packing", len(steps), "parts")
        for step in steps:
            notes += step()
            progress.advance(1)
        progress.end()
        manifest = {
            "format": 1,
            "made_by": f"trioha {__version__}",
            "made_at": rfc3339(wall_ms),
            "namesrv": None if offline else namesrv,
            "events_since": rfc3339(since_wall_ms),
            "missing": notes,
            "files": list(bundle.files),
        }
        bundle.add_json("manifest.json", manifest)
    for note in notes:
        click.echo(f"trioha: note: {note}", err=True)
    if output == "json":
        print_json({"file": str(out), **manifest})
    else:
        size = size_in_words(out.stat().st_size)
        click.echo(f"trioha bundle: {len(bundle.files)} files, {size} in {out}")


async def _gather(
    namesrv: str, timeout_s: float, since_wall_ms: int, progress: TerminalProgress
) -> Evidence:
    def on_node(_: str, total: int) -> None:
        progress.resize(total)
        progress.advance(1)

    progress.begin("asking", 0, "nodes")
    try:
        return await gather(
            namesrv, timeout_s=timeout_s, since_wall_ms=since_wall_ms, on_node=on_node
        )
    finally:
        progress.end()


def _pack_machine(bundle: BundleFile) -> Iterator[str]:
    bundle.add_json("machine/version.json", version_facts())
    bundle.add_json("machine/doctor.json", [attrs.asdict(check) for check in checks()])
    yield from ()


def _pack_cluster(
    bundle: BundleFile, evidence: Evidence, rules: Mapping[str, Rule]
) -> Iterator[str]:
    bundle.add_json("cluster/answers.json", evidence.raw)
    snapshot = ClusterSnapshot.of(evidence.raw)
    bundle.add_json(
        "cluster/alerts.json",
        [
            {
                **attrs.asdict(verdict.reading),
                "level": None if verdict.level is None else verdict.level.name,
                "warn": verdict.rule.warn,
                "crit": verdict.rule.crit,
            }
            for verdict in judge(snapshot, rules, Area)
        ],
    )
    for one in snapshot.namesrvs:
        if one.answer.error:
            yield f"name server {one.address}: {one.answer.error}"
    for node in evidence.nodes:
        yield from _pack_node(bundle, node)


def _pack_node(bundle: BundleFile, node: NodeEvidence) -> Iterator[str]:
    folder = f"nodes/{file_name(f'{node.name}@{node.address}')}"
    for name, answer in node.answers.items():
        bundle.add_json(f"{folder}/{name}.json", answer)
    if node.events:
        bundle.add_lines(f"{folder}/journal.jsonl", map(_event, node.events))
    if node.events_cut:
        yield f"{node.name} at {node.address}: of its journal the newest {len(node.events)} events"
    # One reason is enough of a node that is not there.
    for what, error in list(node.errors.items())[:1]:
        yield f"{node.name} at {node.address}: no {what}: {error}"


def file_name(name: str) -> str:
    """A name that a node chose, as one component of a path that unpacks anywhere."""
    return re.sub(r"[^a-zA-Z0-9@._%-]", "_", name)[:200].lstrip(".") or "_"


def _pack_journal(bundle: BundleFile, folder: Path, since_wall_ms: int) -> Iterator[str]:
    directory = folder
    if not journal_files(directory) and (directory / "journal").is_dir():
        directory = directory / "journal"
    if not journal_files(directory):
        yield f"{folder}: no journal here"
        return
    events: list[Event] = []
    damaged = 0
    for item in read_journal(directory):
        if isinstance(item, Damage):
            damaged += 1
        elif item.wall_ms >= since_wall_ms:
            events.append(item)
    if damaged:
        yield f"{directory}: {damaged} damaged stretches are left out"
    name = "-".join(part for part in directory.resolve().parts[-3:] if part not in ("/", "journal"))
    taken = {entry["name"] for entry in bundle.files}
    number, file = 1, f"journals/{name}.jsonl"
    while file in taken:
        number += 1
        file = f"journals/{name}-{number}.jsonl"
    bundle.add_lines(file, map(_event, events))


def _pack_recording(bundle: BundleFile, path: Path) -> Iterator[str]:
    taken = {entry["name"] for entry in bundle.files}
    number, name = 1, path.name
    while f"recordings/{name}" in taken:
        number += 1
        name = f"{number}-{path.name}"
    try:
        recording = open_recording(path)
        facts = recording_facts(recording, path)
    except TriohaError as error:
        yield f"{error}; not packed"
        return
    if recording.is_cut:
        yield f"{path}: cut short, or still written to"
    bundle.add_file(f"recordings/{name}", path)
    bundle.add_json(f"recordings/{name}.json", facts)


def _pack_screenshots(
    bundle: BundleFile,
    evidence: Evidence | None,
    recordings: Sequence[Path],
    rules: Mapping[str, Rule],
) -> Iterator[str]:
    """The console's screens, if it is installed: of the cluster now, else of a recording's end."""
    try:
        from trioha_console.screenshots import screenshots
    except ModuleNotFoundError as error:
        yield f"no screenshots: {error.name} is not installed; pip install 'trioha[console]'"
        return
    raw = None if evidence is None else evidence.raw
    if raw is None and recordings:
        try:
            recording = open_recording(recordings[0])
            raw = recording.raw(len(recording.frames) - 1)
        except TriohaError as error:
            yield f"no screenshots: {error}"
    if raw is None:
        return
    with tempfile.TemporaryDirectory() as directory:
        try:
            paths = screenshots(raw, Path(directory), rules=rules)
        except Exception as error:  # whatever a picture lacks, the facts have to get out
            yield f"no screenshots: {type(error).__name__}: {error}"
            return
        for path in paths:
            bundle.add_text(f"screenshots/{path.name}", path.read_text())


def _event(event: Event) -> dict[str, Any]:
    return {
        "ts": rfc3339(event.wall_ms),
        "sequence": event.sequence,
        "wall_ms": event.wall_ms,
        "event": event.name,
        **event.fields,
    }
