"""Set up a machine for the gate: install what can be installed, and say what cannot be had."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from gate.passed import commit
from gate.running import OUT, ROOT, VENV, Budget, CommandFailed, check, environment, run

STAMP = ROOT / ".venv" / "installed-for"
_STAMPED = ("pyproject.toml", "constraints.txt")


@dataclass(frozen=True)
class Program:
    """A program that tests need, and the package of Debian that has it."""

    names: tuple[str, ...]
    """Any of these will do."""
    package: str
    what_for: str


PROGRAMS = (
    Program(("git",), "git", "the seeds of a commit, and the check that no file has changed"),
    Program(("gcc",), "gcc libc6-dev python3-dev", "the compiled modules"),
    Program(("ip",), "iproute2", "drills with cut networks"),
    Program(("mount",), "mount", "drills with small disks"),
    Program(("setpriv",), "util-linux", "processes that end with their test"),
    Program(("tmux",), "tmux", "the console in a real terminal"),
    Program(("chromium", "chromium-browser", "google-chrome"), "chromium", "HTML in a browser"),
    Program(("promtool",), "prometheus", "metrics that Prometheus scrapes"),
    Program(("node",), "nodejs", "the Node.js client"),
    Program(("npm",), "npm", "the Node.js client"),
    Program(("javac",), "default-jdk-headless", "Java peers and Spark"),
    Program(("mvn",), "maven", "Java peers"),
    Program(("go",), "golang-go", "the Go client"),
)


def set_up(budget: Budget) -> None:
    """Make .venv, install programs, check rights. Errors: CommandFailed with what is missing."""
    make_venv(budget)
    missing = [*install_programs(budget), *missing_commit(), *missing_rights()]
    for line in missing:
        print(f"cannot be had here: {line}", flush=True)
    if missing:
        raise CommandFailed(f"{len(missing)} things cannot be had here: {'; '.join(missing)}")


def make_venv(budget: Budget) -> None:
    """Install the pinned packages, unless that was done for the same pins."""
    wanted = sha256(b"".join((ROOT / name).read_bytes() for name in _STAMPED)).hexdigest()
    if STAMP.exists() and STAMP.read_text() == wanted:
        return
    if not (VENV / "python").exists():
        check([sys.executable, "-m", "venv", ".venv"], budget)
    extras = ".[console,dev,spark]"
    check([VENV / "pip", "install", "-q", "-e", extras, "-c", "constraints.txt"], budget)
    STAMP.write_text(wanted)


def install_programs(budget: Budget) -> list[str]:
    """Return what is missing afterwards."""
    packages = [program.package for program in PROGRAMS if not _is_here(program)]
    if packages and shutil.which("apt-get") and os.geteuid() == 0:
        words = " ".join(packages).split()
        print(f"installing {' '.join(words)}", flush=True)
        _apt(words, budget)
    return [
        f"{program.names[0]} ({program.package}), for {program.what_for}"
        for program in PROGRAMS
        if not _is_here(program)
    ]


def _apt(packages: list[str], budget: Budget) -> None:
    """All at once; one by one when that fails, so that one that is not there costs only itself."""
    env = environment(DEBIAN_FRONTEND="noninteractive")

    def install(*names: str) -> bool:
        command = ["apt-get", "install", "-q", "-y", "--no-install-recommends", *names]
        with tempfile.TemporaryFile() as quiet:
            return run(command, budget, env=env, output=quiet) == 0

    if install(*packages):
        return
    with tempfile.TemporaryFile() as quiet:
        run(["apt-get", "update", "-q"], budget, env=env, output=quiet)
    if not install(*packages):
        for name in packages:
            install(name)


def _is_here(program: Program) -> bool:
    return any(shutil.which(name) for name in program.names)


def missing_commit() -> list[str]:
    """Return why git cannot tell the commit, if it cannot."""
    try:
        commit()
    except CommandFailed as error:
        return [f"the commit, for seeds and changed files ({error})"]
    return []


def missing_rights() -> list[str]:
    """Return which rights of this user the drills lack."""
    found = []
    probe = f"trioha-{os.getpid()}"
    attempts: tuple[tuple[str, Callable[[], str]], ...] = (
        ("network namespaces, for drills with cut networks", lambda: _namespace_error(probe)),
        ("small disks, for drills with full disks", _mount_error),
    )
    for what, attempt in attempts:
        try:
            error = attempt()
        except OSError as failure:
            error = str(failure)
        if error:
            found.append(f"{what} ({error})")
    return found


def _namespace_error(name: str) -> str:
    if os.geteuid() != 0:
        return "needs root"
    steps = (
        ("netns", "add", name),
        ("link", "add", name[:15], "type", "bridge"),
    )
    errors = [_error_of("ip", *step) for step in steps]
    _error_of("ip", "link", "del", name[:15])
    _error_of("ip", "netns", "del", name)
    return "; ".join(error for error in errors if error)


def _mount_error() -> str:
    if os.geteuid() != 0:
        return "needs root"
    with tempfile.TemporaryDirectory() as place:
        error = _error_of("mount", "-t", "tmpfs", "-o", "size=65536", "tmpfs", place)
        if not error:
            _error_of("umount", place)
        return error


def _error_of(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    return (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[0]


def build_all(budget: Budget) -> None:
    """Build what the tests run: wheel and demo, stock clients, compiled modules."""
    # Before the compiler runs: the demo's nodes have deadlines.
    try_the_wheel(budget)
    tests = str(ROOT / "tests")
    check([VENV / "python", "-m", "support.peers.fetch"], budget, env=environment(PYTHONPATH=tests))
    compile_modules(budget)


def compile_modules(budget: Budget) -> None:
    """Compile in place, unless what is there is as new as the sources."""
    script: list[str | Path] = [VENV / "python", ".ci/compile.py"]
    if run([*script, "--is-fresh"], budget) != 0:
        check(script, budget)


def use_plain_python(budget: Budget) -> None:
    """Remove the compiled modules; what they were linked from is kept."""
    check([VENV / "python", ".ci/compile.py", "--pure"], budget)


def try_the_wheel(budget: Budget) -> None:
    """Install the wheel into a fresh environment, far from the sources, and run its demo."""
    place = OUT / "wheel"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    check([VENV / "pip", "wheel", "-q", "--no-deps", "-w", place, "."], budget)
    (wheel,) = place.glob("trioha-*.whl")
    fresh = place / "venv"
    check([sys.executable, "-m", "venv", fresh], budget)
    check([fresh / "bin" / "pip", "install", "-q", wheel, "-c", "constraints.txt"], budget)
    with tempfile.TemporaryDirectory() as elsewhere:
        print(f"a demo from {wheel.name}:", flush=True)
        env = environment(PATH=os.environ["PATH"])
        check([fresh / "bin" / "trioha", "demo"], budget, env=env, cwd=Path(elsewhere))
    shutil.rmtree(fresh)
