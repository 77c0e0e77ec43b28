"""The cost of an analysis, by size of the store and cores: `just bench-analysis`.

Stores are made once (`support.stores.big`) and analysed in processes of their own. Measured are the
decoder alone (the scanner's batches, and these with every column as Arrow arrays, one core), the
header scan on Spark (every column of `rocketmq_commitlog` into the JVM, rows dropped there, Spark's
start not counted) and the whole of `trioha analyze` (start and all) on both engines, which get so
many processors (`taskset`) as there are cores in the row. `--against` names another tree of the
project, whose `trioha analyze` runs in turns with this one's. A sampler watches the largest
resident memory of any Python worker and of the JVM. Beside wall time stands processor time, of all
processes together: it says what the work costs where others share the machine. The page's section
between markers is written anew after each size, so a run that is stopped has told what it knew.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
from bench.page import marks, replace_section

from trioha.compiled import this_build

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "benchmarks-appendix.md"
MIB = 1 << 20
GIB = 1 << 30
SAMPLE_INTERVAL_S = 0.2
WARM_BYTES = 64 * MIB
FEW_COLUMNS = "topic,size"
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@attrs.frozen
class Cost:
    wall_s: float
    cpu_s: float
    """Processor seconds of all processes."""


@attrs.frozen
class Row:
    log_bytes: int
    messages: int
    cores: int
    headers: Cost
    """The scanner's batches alone, over all of the log, in one process."""
    bare: Cost
    """The same, and every column as an Arrow array."""
    at_once: Cost
    """One bare loop per core, each over its share of the log."""
    scan: Cost
    few: Cost
    """The header scan of two columns, one task a core."""
    full: dict[str, Cost]
    """The whole of `trioha analyze`, by engine."""
    before: dict[str, Cost]
    """The same by the tree that was named, if it was measured at this size."""
    reports: dict[str, float]
    local_bytes: int
    """Largest process of the local engine."""
    worker_bytes: int
    jvm_bytes: int


@attrs.frozen
class Other:
    """Another tree of the project, that this one is compared with."""

    tree: Path | None
    bytes_max: int
    """The largest log that it analyses."""


@attrs.define
class Peaks:
    """Largest resident memory of one Python worker, and of the JVM."""

    worker_bytes: int = 0
    jvm_bytes: int = 0
    with_root: bool = False
    """The process that was started counts as a worker: it does a worker's part."""
    unaccounted: dict[int, float] = attrs.Factory(dict)
    """Processor seconds of each Python worker of Spark's, as last seen. Their parent ignores
    SIGCHLD, so the kernel adds them to no process."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", default="1g,2g,4g,8g", help="of log, like 256m,1g")
    parser.add_argument("--cores", default="1,2")
    parser.add_argument(
        "--one-core-max",
        default="2g",
        help="the largest log whose full report one core makes as well; 8g takes ten minutes more",
    )
    parser.add_argument("--against", type=Path, help="another tree of the project, before this one")
    parser.add_argument("--against-max", default="1g", help="the largest log that it analyses")
    parser.add_argument("--directory", type=Path, help="where the stores are made and kept")
    parser.add_argument("--dry-run", action="store_true", help="print, and leave the page alone")
    parser.add_argument("--scan", nargs=2, metavar=("STORE", "CORES"), help=argparse.SUPPRESS)
    parser.add_argument("--bare", nargs=2, metavar=("STORE", "LOOPS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.scan:
        print(json.dumps(_scan(Path(options.scan[0]), int(options.scan[1]))))
        return
    if options.bare:
        print(json.dumps(_bare(Path(options.bare[0]), int(options.bare[1]))))
        return
    sizes = [_size(text) for text in options.sizes.split(",")]
    cores = [int(text) for text in options.cores.split(",")]
    one_core_max = _size(options.one_core_max)
    other = Other(options.against, _size(options.against_max))

    def tell(rows: Sequence[Row]) -> None:
        if not options.dry_run:
            section = _section(rows)
            PAGE.write_text(replace_section(PAGE.read_text(), section, *marks("bench-analysis")))

    if options.directory is not None:
        rows = _rows(options.directory, sizes, cores, one_core_max, other, tell)
    else:
        with tempfile.TemporaryDirectory(prefix="trioha-bench-") as directory:
            rows = _rows(Path(directory), sizes, cores, one_core_max, other, tell)
    print(_section(rows))


def _rows(
    directory: Path,
    sizes: Sequence[int],
    cores: Sequence[int],
    one_core_max: int,
    other: Other,
    tell: Callable[[Sequence[Row]], None],
) -> list[Row]:
    rows: list[Row] = []
    for size in sizes:
        store, messages = _store(directory, size)
        _warm(store)
        alone = json.loads(_watched([__file__, "--bare", str(store), "1"], Peaks()))
        bare, headers = _cost(alone), Cost(alone["headers_seconds"], alone["headers_cpu"])
        for count in cores:
            at_once = bare
            if count > 1:
                arguments = [__file__, "--bare", str(store), str(count)]
                at_once = _cost(json.loads(_watched(arguments, Peaks())))
            taskset = ("taskset", "-c", f"0-{count - 1}")
            began = time.monotonic()
            peaks = Peaks()
            arguments = [__file__, "--scan", str(store), str(count)]
            scan = json.loads(_watched(arguments, peaks, taskset))
            few = Cost(scan["few_seconds"], scan["few_cpu"])
            full: dict[str, Cost] = {}
            before: dict[str, Cost] = {}
            reports: dict[str, float] = {}
            locally = Peaks(with_root=True)
            if count > 1 or size <= one_core_max:
                for engine in ("local", "spark"):
                    seen = locally if engine == "local" else peaks
                    seen.unaccounted.clear()
                    full[engine], times = _full(directory, store, engine, count, seen, ROOT)
                    reports = reports or times
                    if other.tree is not None and size <= other.bytes_max:
                        before[engine], _ = _full(
                            directory, store, engine, count, Peaks(), other.tree
                        )
            rows.append(
                Row(
                    size,
                    messages,
                    count,
                    headers,
                    bare,
                    at_once,
                    _cost(scan),
                    few,
                    full,
                    before,
                    reports,
                    locally.worker_bytes,
                    peaks.worker_bytes,
                    peaks.jvm_bytes,
                )
            )
            assert scan["rows"] == messages, (scan, messages)
            _say(f"{_words(size)}, {count} cores: {time.monotonic() - began:.0f} s; {rows[-1]}")
        tell(rows)
        if directory.name.startswith("trioha-bench-"):
            shutil.rmtree(store)
    return rows


def _store(directory: Path, size: int) -> tuple[Path, int]:
    from support.stores.big import write_big_store

    store = directory / f"broker-{size // MIB}m"
    note = store / "messages"
    if not note.exists():
        shutil.rmtree(store, ignore_errors=True)
        began = time.monotonic()
        made = write_big_store(store, size, is_real=True)
        note.write_text(str(made.messages))
        _say(f"{_words(size)}: made in {time.monotonic() - began:.0f} s")
    return store, int(note.read_text())


def _warm(store: Path) -> None:
    """Read all files once, so that none of the runs waits for the disk, and pays for it."""
    for path in store.rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.read(4 * MIB):
                    pass


def _cost(measured: dict[str, Any]) -> Cost:
    return Cost(measured["seconds"], measured["cpu"])


def _bare(store: Path, loops: int) -> dict[str, Any]:
    """The decoder alone, every column made, in so many processes at once; the faster of two passes,
    for the first may find pages of the store that the machine has put away."""
    # Here, so that no loop's time has the imports: a process that is forked has them already.
    from trioha.analysis.arrow_batches import schema_of, to_arrow
    from trioha.analysis.scan import scan_split
    from trioha.analysis.schema import COMMITLOG
    from trioha.analysis.store_files import open_store

    schema = schema_of(COMMITLOG, COMMITLOG.spark_names)

    def decode(first: int, is_bare: bool) -> None:
        rows = 0
        for split in open_store(store).splits()[first::loops]:
            for batch in scan_split(split):
                if batch.row_count and not is_bare:
                    to_arrow(batch, COMMITLOG, schema)
                rows += batch.row_count
        assert rows

    seconds, cpu = _passes(decode, loops, is_bare=False)
    headers_seconds, headers_cpu = _passes(decode, loops, is_bare=True)
    return {
        "seconds": seconds,
        "cpu": cpu,
        "headers_seconds": headers_seconds,
        "headers_cpu": headers_cpu,
    }


def _passes(
    decode: Callable[[int, bool], None], loops: int, *, is_bare: bool
) -> tuple[float, float]:
    """Wall and processor seconds of the faster of two passes in so many processes."""
    forking = multiprocessing.get_context("fork")
    passes = []
    for _ in range(2):
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        workers = [forking.Process(target=decode, args=(first, is_bare)) for first in range(loops)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
            assert worker.exitcode == 0, worker.exitcode
        seconds = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        passes.append((seconds, cpu_s))
    return min(passes)


def _scan(store: Path, cores: int) -> dict[str, Any]:
    from trioha.analysis.spark import register
    from trioha.analysis.spark.session import open_session

    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        with open_session(
            master=f"local[{cores}]",
            scratch=scratch,
            log=scratch / "spark.log",
            bytes_total=sum(file.stat().st_size for file in (store / "commitlog").iterdir()),
        ) as (session, _):
            register(session)
            read = session.read.format("rocketmq_commitlog")
            whole = read.load(str(store))
            _into_jvm(whole.where(f"phy_offset < {WARM_BYTES}"))
            every = _into_jvm(whole)
            # A user who wants nothing but topics and sizes sets these options.
            tasks = {"splitBytes": "16g", "minPartitions": str(cores)}
            few = _into_jvm(read.options(columns=FEW_COLUMNS, **tasks).load(str(store)))
            rows = read.option("columns", "size").load(str(store)).count()
    return {
        "seconds": every.wall_s,
        "cpu": every.cpu_s,
        "few_seconds": few.wall_s,
        "few_cpu": few.cpu_s,
        "rows": rows,
    }


def _into_jvm(rows: Any) -> Cost:
    """Let Spark read all rows of a DataFrame and drop them."""
    cpu, began = _cpu_s(os.getpid()), time.perf_counter()
    rows.write.format("noop").mode("overwrite").save()
    return Cost(time.perf_counter() - began, _cpu_s(os.getpid()) - cpu)


def _cpu_s(root: int) -> float:
    """Processor time of a process and all below it, ended ones too once they were waited for."""
    total = 0
    for pid in (root, *_descendants(root)):
        with contextlib.suppress(OSError, IndexError):
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += sum(map(int, fields[11:15]))
    return total / os.sysconf("SC_CLK_TCK")


def _full(
    directory: Path, store: Path, engine: str, cores: int, peaks: Peaks, tree: Path
) -> tuple[Cost, dict[str, float]]:
    out = directory / "out"
    shutil.rmtree(out, ignore_errors=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    _watched(
        [
            *("-m", "trioha", "analyze", str(store), "--out", str(out)),
            *("--engine", engine, "-o", "json", "--overwrite"),
            *(("--master", f"local[{cores}]") if engine == "spark" else ()),
        ],
        peaks,
        ("taskset", "-c", f"0-{cores - 1}"),
        tree,
    )
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    cpu_s += sum(peaks.unaccounted.values())
    manifest = json.loads((out / "manifest.json").read_text())
    assert not manifest["partial"], manifest["reason"]
    shutil.rmtree(out)
    return Cost(seconds, cpu_s), {
        report["name"]: report["seconds"]
        for report in manifest["reports"]
        if "skipped" not in report
    }


def _watched(
    arguments: Sequence[str], peaks: Peaks, prefix: Sequence[str] = (), tree: Path = ROOT
) -> str:
    """Run a tree's Python on this and return its stdout; note the largest process."""
    path = os.pathsep.join([str(tree / "tests"), str(tree)])
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [*prefix, sys.executable, *arguments],
            stdout=output,
            env={**os.environ, "PYTHONPATH": path},
            cwd=tree,
        )
        over = threading.Event()
        sampler = threading.Thread(target=_sample, args=(process.pid, peaks, over))
        sampler.start()
        code = process.wait()
        over.set()
        sampler.join()
        output.seek(0)
        text = output.read()
    assert code == 0, (arguments, code)
    return text


def _sample(root: int, peaks: Peaks, over: threading.Event) -> None:
    while not over.wait(SAMPLE_INTERVAL_S):
        for pid in (*([root] if peaks.with_root else ()), *_descendants(root)):
            try:
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                if b"pyspark.daemon" in Path(f"/proc/{fields[1]}/cmdline").read_bytes():
                    ticks = int(fields[11]) + int(fields[12])
                    peaks.unaccounted[pid] = ticks / os.sysconf("SC_CLK_TCK")
                resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
            except (OSError, IndexError):
                continue
            if name == "java":
                peaks.jvm_bytes = max(peaks.jvm_bytes, resident)
            elif name.startswith("python"):
                peaks.worker_bytes = max(peaks.worker_bytes, resident)


def _descendants(root: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    waiting = list(parents.get(root, ()))
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += parents.get(pid, ())
    return found


def _section(rows: Sequence[Row]) -> str:
    lines = [
        "## What an analysis costs",
        "",
        f"{time.strftime('%Y-%m-%d')}, trioha {this_build()}, Python {platform.python_version()},"
        f" {os.cpu_count()} cores,"
        f" load average {os.getloadavg()[2]:.1f} over the last quarter of an hour: where others"
        " share the machine, processor time says what the work costs, and wall time says little."
        " Spark on `local[cores]`, all processes on so many processors (`taskset`)."
        " Stores by `tests/support/stores/big.py`: 49 queues of 11 topics with index files, delayed"
        " messages and transactions, a day,"
        f" {rows[0].log_bytes // rows[0].messages} bytes a record, warm in the page cache. Cpu:"
        " processor time of all processes, those of Spark's JVM included. Headers: the scanner's"
        " batches in one process; bare: the same, and every column as an Arrow array; the faster of"
        " two passes. At once: bare, in as many processes as there are cores. Header scan: the same"
        " columns of every record into the JVM, Spark's start not counted. Of bare: rows per second"
        " of processor time, as a share of the one process's, then of those at once; in brackets"
        f" rows per second of wall time and core. Few columns: `{FEW_COLUMNS}` alone, one task a"
        " core (`splitBytes`, `minPartitions`), after the other scan in the same session, and what"
        " share of the headers' rows per second of processor time that is.",
        "",
        "| log | messages | cores | headers (cpu) | GB/s, M msg/s of cpu | bare (cpu) | GB/s, M"
        " msg/s of cpu | at once (cpu) | header scan on Spark (cpu) | of bare, of those at once"
        " | few columns on Spark (cpu) | GB/s, M msg/s of cpu | of headers |",
        "|---" * 13 + "|",
    ]
    for row in rows:
        alone, at_once, scan = row.bare, row.at_once, row.scan
        shares = (
            f"{alone.cpu_s / scan.cpu_s:.2f} ({alone.wall_s / scan.wall_s / row.cores:.2f}),"
            f" {at_once.cpu_s / scan.cpu_s:.2f} ({at_once.wall_s / scan.wall_s:.2f})"
        )
        lines.append(
            f"| {_words(row.log_bytes)} | {row.messages:,} | {row.cores}"
            f" | {_said(row.headers)} | {_rates(row, row.headers)}"
            f" | {_said(row.bare)} | {_rates(row, row.bare)}"
            f" | {_said(row.at_once)} | {_said(row.scan)} | {shares}"
            f" | {_said(row.few)} | {_rates(row, row.few)}"
            f" | {row.headers.cpu_s / row.few.cpu_s:.2f} |"
        )
    lines += [
        "",
        "Full report: `trioha analyze` with every report that one store without a journal allows,"
        " start and all. Before: the tree that `--against` names, right after this one. Memory: the"
        " largest that any one process had.",
        "",
        "| log | cores | local (cpu) | cpu per GiB | before | Spark (cpu) | cpu per GiB | before |"
        " local process | Spark's Python worker | JVM |",
        "|---" * 11 + "|",
    ]
    for row in rows:
        if row.full:
            cells = [
                cell
                for engine in ("local", "spark")
                for cell in (
                    f"**{_said(row.full[engine])}**",
                    f"{row.full[engine].cpu_s / (row.log_bytes / GIB):.1f} s",
                    _said(row.before[engine]) if engine in row.before else "-",
                )
            ]
            lines.append(
                f"| {_words(row.log_bytes)} | {row.cores} | {' | '.join(cells)}"
                f" | {row.local_bytes // MIB} MiB | {row.worker_bytes // MIB} MiB"
                f" | {row.jvm_bytes // MIB} MiB |"
            )
    names = next((list(row.reports) for row in reversed(rows) if row.reports), [])
    lines += [
        "",
        "Seconds by report on the local engine, in the order they are made; the first pays for the"
        " decoding and the statistics that all share:",
        "",
        "| log | cores | " + " | ".join(names) + " |",
        "|---" * (2 + len(names)) + "|",
    ]
    for row in rows:
        if row.full:
            figures = " | ".join(f"{row.reports.get(name, 0):.1f}" for name in names)
            lines.append(f"| {_words(row.log_bytes)} | {row.cores} | {figures} |")
    lines += ["", "Regenerate with `just bench-analysis`."]
    return "\n".join(lines)


def _said(cost: Cost) -> str:
    return f"{cost.wall_s:.1f} s ({cost.cpu_s:.1f} s)"


def _rates(row: Row, cost: Cost) -> str:
    return f"{row.log_bytes / cost.cpu_s / 1e9:.2f}, {row.messages / cost.cpu_s / 1e6:.2f}"


def _size(text: str) -> int:
    units = {"m": MIB, "g": GIB}
    return int(float(text[:-1]) * units[text[-1].lower()])


def _words(size: int) -> str:
    return f"{size // GIB} GiB" if size % GIB == 0 else f"{size // MIB} MiB"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
