"""Compile the hot modules with mypyc, or remove what was compiled.

    python .ci/compile.py           build in place: `just compile`
    python .ci/compile.py --pure    back to plain Python: `just pure`
    python .ci/compile.py --is-fresh    fails unless the build in place is as new as the sources

`hatch_hook.py` beside it calls `compile_into` for a wheel. The list of modules is
trioha/compiled.py's.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent


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


def compile_into(out: Path) -> list[Path]:
    """Compile below `out`, which mirrors the repository's root; returns the files made."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(os.environ.get("CC", compiler)) is None:
        sys.exit(f"no C compiler ({compiler}) here: install gcc and Python's headers, or stay pure")
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    settings = _settings()
    remove(ROOT)  # mypy must see sources, not what they were compiled to
    os.chdir(ROOT)
    sources = [str(settings.source_path(name).relative_to(ROOT)) for name in settings.HOT_MODULES]
    with tempfile.TemporaryDirectory(prefix="trioha-compile-") as work:
        group = settings.SHARED_LIBRARY.removesuffix("__mypyc")
        extensions = mypycify(
            ["--config-file=pyproject.toml", f"--cache-dir={work}/cache", *sources],
            opt_level="3",
            debug_level="0",
            target_dir=f"{work}/c",
            group_name=group,
        )
        command = build_ext(Distribution({"name": "trioha", "ext_modules": extensions}))
        command.build_lib = str(out)
        command.build_temp = f"{work}/o"
        command.ensure_finalized()
        command.run()
    made = [Path(path) for path in command.get_outputs()]
    stamp = out / "trioha" / "compiled_sources.json"
    stamp.write_text(json.dumps(settings.source_digests(), indent=1) + "\n")
    return [*made, stamp]


def remove(root: Path) -> None:
    """Delete everything that `compile_into(root)` made."""
    for path in (root / "trioha").rglob("*.so"):
        path.unlink()
    (root / "trioha" / "compiled_sources.json").unlink(missing_ok=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            print(f"compiled: {len(compile_into(ROOT)) - 2} modules in place")
        case ["--pure"]:
            remove(ROOT)
        case ["--is-fresh"]:
            build = _settings().this_build()
            sys.exit(not build.compiled or bool(build.stale))
        case _:
            sys.exit(__doc__)
