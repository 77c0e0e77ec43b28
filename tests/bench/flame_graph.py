"""Draws a flame graph of a broker's processor time: `just flame-graph --out FILE.svg`.

    just flame-graph --out after.svg
    just flame-graph --tree OLDER_CHECKOUT --out before.svg --senders 64 --layout DLEDGER

A pair (or a broker alone, or a group) of the tree under `trioha bench produce`; Linux's `perf`
takes the stacks of the master. A box is a function, its width the share of the samples in which it
was on the stack, callees above callers. Functions of compiled modules have their names. Python
3.11 shows perf no names for those that it interprets: they are one box, "interpreted".
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path

import attrs
from bench.cost.__main__ import LAYOUTS, load, open_nodes, read, warm_up
from bench.peer.nodes import Runtime
from support.processes.rig import REPO

SECONDS = 4
HZ = 1499
STACK_BYTES = 32_768
"""Copied with each sample; what lies below it is cut off at the bottom of the picture."""
WIDTH, ROW_HEIGHT, TEXT_WIDTH = 1200, 16, 6.4
LEAST_SHARE = 0.003
"""Boxes below it are left out."""
_INTERPRETED = "interpreted"
_CLONE = re.compile(r"\.(part|constprop|isra|cold)\b.*")
"""Mark of a copy of a function that the C compiler has made."""
_PLUMBING = re.compile(
    r"_?PyObject_(Vectorcall|Call|MakeTpCall|FastCall)|_PyFunction_Vectorcall|_PyVectorcall|"
    r"method_vectorcall|cfunction_|_PyEval_Vector|PyEval_EvalCode|entry_SYSCALL|do_syscall_64|"
    r"__x64_|\[unknown\]|_start|__libc_start|main$|Py_BytesMain|Py_RunMain|gen_send_ex|slot_tp_"
)


def name_of(symbol: str) -> str | None:
    """Return a function's name for people; None if it only leads to another."""
    symbol = _CLONE.sub("", symbol.removesuffix(" (inlined)").partition("+0x")[0])
    if symbol.startswith("_PyEval_EvalFrame"):
        return _INTERPRETED
    if symbol.startswith("CPyPy_"):
        return None  # the entry from interpreted code; the function itself comes next
    if symbol.startswith("CPyDef_"):
        return ".".join(part.strip("_") for part in symbol[7:].split("___"))
    return None if _PLUMBING.match(symbol) else symbol


def stacks(script: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yield the stacks of `perf script -F ip,sym`, the outermost function first."""
    frames: list[str] = []
    for line in script:
        fields = line.split(None, 1)
        if len(fields) == 2:
            name = name_of(fields[1].strip())
            if name is not None and (not frames or frames[-1] != name):
                frames.append(name)
        elif frames:
            yield tuple(reversed(frames))
            frames = []
    if frames:
        yield tuple(reversed(frames))


@attrs.define
class Box:
    """One function on one way to it."""

    samples: int = 0
    callees: dict[str, Box] = attrs.field(factory=dict)


def tree_of(found: Iterable[tuple[str, ...]]) -> Box:
    root = Box()
    for stack in found:
        box = root
        box.samples += 1
        for name in stack:
            box = box.callees.setdefault(name, Box())
            box.samples += 1
    return root


def draw(root: Box, title: str) -> str:
    """Draw an SVG; boxes tell their share when the mouse is over them."""
    drawn: list[tuple[int, float, float, str]] = []

    def place(box: Box, depth: int, left: float) -> None:
        for name, callee in sorted(box.callees.items()):
            width = callee.samples / root.samples
            if width >= LEAST_SHARE:
                drawn.append((depth, left, width, name))
                place(callee, depth + 1, left)
            left += width

    place(root, 0, 0.0)
    height = (max((depth for depth, *_ in drawn), default=0) + 3) * ROW_HEIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="11">',
        f'<text x="4" y="12">{escape(title)}</text>',
    ]
    for depth, left, width, name in drawn:
        x, wide = left * WIDTH, width * WIDTH
        y = height - (depth + 1) * ROW_HEIGHT
        room = int(wide / TEXT_WIDTH)
        shown = name if len(name) < room else name[: max(0, room - 1)]
        lines.append(
            f"<g><title>{escape(name)}: {width:.1%}</title>"
            f'<rect x="{x:.1f}" y="{y}" width="{max(wide - 0.5, 0.5):.1f}" '
            f'height="{ROW_HEIGHT - 1}" fill="{_colour(name)}"/>'
            f'<text x="{x + 2:.1f}" y="{y + 11}">{escape(shown)}</text></g>'
        )
    return "\n".join([*lines, "</svg>"]) + "\n"


def _colour(name: str) -> str:
    if name == _INTERPRETED:
        return "#9ec5e8"
    return "#a8d8a0" if "." in name else "#f0c27a"


def measure(
    runtime: Runtime, layout: str, senders: int, place: str
) -> tuple[list[tuple[str, ...]], float]:
    """Return the stacks of a node under load, and its microseconds for a message meanwhile."""
    with (
        tempfile.TemporaryDirectory(prefix="trioha-flame-graph-") as name,
        open_nodes("compiled", layout, runtime) as (nodes, namesrv),
    ):
        if place not in nodes:
            raise SystemExit(f"no node {place} in {layout}: there are {', '.join(nodes)}")
        warm_up(namesrv, senders)
        pid = nodes[place].process.pid
        data = Path(name, "perf.data")
        record = ["perf", "record", "-q", "-F", str(HZ), "--call-graph", f"dwarf,{STACK_BYTES}"]
        with subprocess.Popen([*record, "-p", str(pid), "-o", data]) as perf:
            before = read(pid)
            messages = load(namesrv, senders, SECONDS)["messages"]
            cost_us = (read(pid).cpu_ns - before.cpu_ns) / 1000 / messages
            perf.terminate()
        script = ["perf", "script", "--no-inline", "-F", "ip,sym", "-i", str(data)]
        told = subprocess.run(script, check=True, capture_output=True, text=True)
        return list(stacks(told.stdout.splitlines())), cost_us


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tree", type=Path, default=REPO, metavar="DIR", help="this tree")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.svg")
    parser.add_argument("--senders", type=int, default=1)
    parser.add_argument("--layout", choices=LAYOUTS, default="SYNC")
    parser.add_argument(
        "--node", default="master", help="the master or leader, or `slave`, `follower 1`"
    )
    options = parser.parse_args()
    runtime = Runtime(tree=options.tree.resolve())
    found, cost_us = measure(runtime, options.layout, options.senders, options.node)
    title = (
        f"Processor time of a {options.node}, {options.layout}, senders: {options.senders}; "
        f"{runtime.version()['build']}; "
        f"{cost_us:.0f} us a message while perf watched, {len(found):,} samples"
    )
    options.out.write_text(draw(tree_of(found), title))
    print(f"{options.out}: {len(found):,} samples")


if __name__ == "__main__":
    main()
