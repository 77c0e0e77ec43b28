"""Run the quick tests on other Pythons: as plain Python, and again where compiled modules are.

    python .ci/pythons.py                   on those of python3.11 to python3.14 that are on PATH
    python .ci/pythons.py --python /opt/python3.14/bin/python3.14

The gate runs on one Python only. The sources are a clone with the files that git knows, as they are
now. The exit code is 1 if a test fails on one of them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import wheels
from gate.plan import COMPILED_PATHS, QUICK
from gate.running import environment

_PYTEST = ("-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "-m", QUICK)


def try_python(python: str, place: Path) -> None:
    """Install into a fresh environment and run the tests. Errors: CalledProcessError."""
    sources, fresh = place / "sources", place / "sources" / ".venv" / "bin"
    env = environment()
    env["PATH"] = f"{fresh}:{env['PATH']}"

    def run(*words: str | Path) -> None:
        subprocess.run(words, check=True, cwd=sources, env=env)

    subprocess.run(["git", "clone", "-q", wheels.ROOT, sources], check=True)
    wheels.copy_sources(sources)
    run(python, "-m", "venv", ".venv")
    run(fresh / "pip", "install", "-q", "-e", ".[console,dev,spark]", "-c", "constraints.txt")
    run(fresh / "python", *_PYTEST)
    run(fresh / "python", ".ci/compile.py")
    run(fresh / "python", *_PYTEST, *COMPILED_PATHS)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", action="append", help="interpreter to test on; several times")
    named = parser.parse_args().python
    interpreters = named or wheels.pythons()
    if not interpreters:
        sys.exit(f"no python of {', '.join(wheels.VERSIONS)} on PATH: name one with --python")
    tried = {Path(python).name for python in interpreters}
    absent = () if named else [f"python{one}" for one in wheels.VERSIONS]
    told = [f"{one}: none on PATH that starts, not tried" for one in absent if one not in tried]
    for python in interpreters:
        print(f"== {python}", flush=True)
        begin_s = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="trioha-python-") as name:
            try:
                try_python(python, Path(name))
                verdict = "held"
            except subprocess.CalledProcessError as error:
                verdict = f"failed: exit code {error.returncode} of {' '.join(map(str, error.cmd))}"
        told.append(f"{python}: {verdict}, {time.monotonic() - begin_s:.0f} s")
    print("\n".join(told))
    sys.exit(any(": failed" in line for line in told))


if __name__ == "__main__":
    main()
