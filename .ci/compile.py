"""Compile the hot modules with mypyc, or remove what was compiled.

    python .ci/compile.py           build in place: `just compile`
    python .ci/compile.py --trained     the same, shaped by a load: takes three times as long
    python .ci/compile.py --pure    back to plain Python: `just pure`
    python .ci/compile.py --is-fresh    fails unless the build in place is as new as the sources

`hatch_hook.py` beside it calls `compile_into` for a wheel. The list of modules is
trioha/compiled.py's.

A trained build is compiled twice. The first one counts how often each branch is taken while
`train.py` runs a load, and gcc lays the code of the second one out by these counts. See
docs/decisions/0029-a-load-shapes-the-wheels.md.

Each module becomes a C file of its own, and the files are compiled on all processors. What was
compiled is kept in build/compiled: a C file is compiled again when it, a header or the command has
changed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "build" / "compiled"
"""Generated C, objects, and mypy's cache, from one build to the next."""
FLAGS = ("-fvisibility=hidden", "-fno-plt")
"""Compiled functions call each other directly. Without the first they go by a table, 90,000 calls
in all, since another library might replace them; with the second those of Python are found when
the library is loaded."""
COUNTING = ("-fprofile-generate", "-fprofile-update=prefer-atomic")
COUNTED = ("-fprofile-use", "-fprofile-partial-training", "-Wno-missing-profile")
"""gcc's. What the load does not run is compiled as without counts."""


def _settings() -> ModuleType:
    """trioha/compiled.py, which imports nothing that is compiled."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("compiled", ROOT / "trioha" / "compiled.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def compile_into(out: Path, objects: Path = KEPT / "o", flags: Sequence[str] = ()) -> list[Path]:
    """Compile below `out`, which mirrors the repository's root; returns the files made.

    `objects`: the folder of what gcc makes. `flags`: more of the compiler's and the linker's.
    """
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(os.environ.get("CC", compiler)) is None:
        sys.exit(f"no C compiler ({compiler}) here: install gcc and Python's headers, or stay pure")
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    settings = _settings()
    # Taken first: a module that is edited during the build is older in it than its source.
    digests = settings.source_digests()
    remove(ROOT)  # mypy must see sources, not what they were compiled to
    os.chdir(ROOT)
    sources = [str(settings.source_path(name).relative_to(ROOT)) for name in settings.HOT_MODULES]
    group = settings.SHARED_LIBRARY.removesuffix("__mypyc")
    generated = KEPT / "c"
    extensions = mypycify(
        ["--config-file=pyproject.toml", f"--cache-dir={KEPT / 'cache'}", *sources],
        opt_level="3",
        debug_level="0",
        target_dir=str(generated),
        group_name=group,
        multi_file=True,
    )
    for extension in extensions:
        if sys.platform != "win32":
            extension.extra_compile_args += (*FLAGS, *flags)
            extension.extra_link_args += flags
        # Headers of the group lie in its package's folder.
        extension.include_dirs.append(str(generated / group.rpartition(".")[0]))

    class Build(build_ext):
        """Compiles the C files that have changed, several at a time."""

        def build_extensions(self) -> None:
            changed = _ChangedFiles(self.compiler, generated)
            self.compiler.compile = changed.compile  # type: ignore[method-assign]
            super().build_extensions()

    command = Build(Distribution({"name": "trioha", "ext_modules": extensions}))
    command.build_lib = str(out)
    command.build_temp = str(objects)
    command.parallel = os.cpu_count()
    command.force = True  # links always; what is compiled again is up to _ChangedFiles
    command.ensure_finalized()
    command.run()
    made = [Path(path) for path in command.get_outputs()]
    stamp = out / "trioha" / "compiled_sources.json"
    told = {"trained": flags == COUNTED, "sources": digests}
    stamp.write_text(json.dumps(told, indent=1) + "\n")
    return [*made, stamp]


def compile_trained_into(out: Path) -> list[Path]:
    """Like `compile_into`, shaped by a load that runs on a build in place. Errors: SystemExit."""
    objects = KEPT / "trained"
    shutil.rmtree(objects, ignore_errors=True)
    compile_into(ROOT, objects, COUNTING)
    # pip has put there what it has installed for this build.
    search = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(search)}
    try:
        subprocess.run([sys.executable, ROOT / ".ci" / "train.py"], check=True, env=paths)
    finally:
        remove(ROOT)  # a build that counts is of no other use
    if not any(objects.rglob("*.gcda")):
        sys.exit("the load left no counts (*.gcda): a trained build needs gcc")
    return compile_into(out, objects, COUNTED)


class _ChangedFiles:
    """A compiler that leaves an object alone whose inputs are as they were."""

    def __init__(self, compiler: Any, generated: Path) -> None:
        self._compiler = compiler
        headers = sha256()
        for path in sorted(generated.rglob("*.h")):
            headers.update(path.read_bytes())
        self._headers = headers.hexdigest()

    def compile(
        self,
        sources: Sequence[str],
        output_dir: str | None = None,
        macros: Any = None,
        include_dirs: Any = None,
        debug: bool = False,
        extra_preargs: Any = None,
        extra_postargs: Any = None,
        depends: Any = None,
    ) -> list[str]:
        """Compile like distutils, but several files at a time. The arguments are distutils'."""
        compiler = self._compiler
        _, objects, postargs, pp_opts, build = compiler._setup_compile(
            output_dir, macros, include_dirs, sources, depends, extra_postargs
        )
        cc_args = compiler._get_cc_args(pp_opts, debug, extra_preargs)
        command = [*compiler.compiler_so, *cc_args, *postargs, sys.version, self._headers]

        def compile_one(made: str) -> None:
            source, suffix = build[made]
            stamp = Path(f"{made}.made-from")
            wanted = sha256(
                " ".join([*command, source, Path(source).read_text()]).encode()
            ).hexdigest()
            if Path(made).exists() and stamp.exists() and stamp.read_text() == wanted:
                return
            stamp.unlink(missing_ok=True)
            compiler._compile(made, source, suffix, cc_args, postargs, pp_opts)
            stamp.write_text(wanted)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(compile_one, objects))
        return list(objects)


def remove(root: Path) -> None:
    """Delete everything that `compile_into(root)` made."""
    for path in (root / "trioha").rglob("*.so"):
        path.unlink()
    (root / "trioha" / "compiled_sources.json").unlink(missing_ok=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            print(f"compiled: {len(compile_into(ROOT)) - 2} modules in place")
        case ["--trained"]:
            print(f"compiled: {len(compile_trained_into(ROOT)) - 2} modules in place, trained")
        case ["--pure"]:
            remove(ROOT)
        case ["--is-fresh"]:
            build = _settings().this_build()
            sys.exit(not build.compiled or bool(build.stale))
        case _:
            sys.exit(__doc__)
