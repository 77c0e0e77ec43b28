"""A compiled build does what the sources say, to the byte."""

from __future__ import annotations

import ast
import json
import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

import pytest
from support.suite.skips import importable, skip_unless, unavailable

from trioha.compiled import HOT_MODULES, ROOT, Build, source_path, this_build

COMPILE_S = 300
RUN_S = 120


def copy_of_sources(root: Path, *ignored_names: str) -> Path:
    """Copy the package and what compiles it."""
    ignored = shutil.ignore_patterns("__pycache__", *ignored_names)
    shutil.copytree(ROOT / "trioha", root / "trioha", ignore=ignored)
    shutil.copytree(ROOT / ".ci", root / ".ci", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


def transcript(package: Path, directory: Path) -> tuple[str, str]:
    """Run with the trioha below `package`; return what it prints, and which build it was."""
    done = subprocess.run(
        [sys.executable, "-m", "support.handlers.transcript", str(directory)],
        env=os.environ | {"PYTHONPATH": f"{package}{os.pathsep}{ROOT / 'tests'}"},
        cwd=directory.parent,
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr.strip()


def test_the_list_names_modules_that_are_there() -> None:
    assert [name for name in HOT_MODULES if not source_path(name).is_file()] == []
    assert list(HOT_MODULES) == list(dict.fromkeys(HOT_MODULES))


@pytest.mark.parametrize("name", HOT_MODULES)
def test_no_loop_changes_the_bounds_of_its_range(name: str) -> None:
    """Python asks for the bounds once, compiled code before each turn."""
    for node in ast.walk(ast.parse(source_path(name).read_text())):
        match node:
            case ast.For(iter=ast.Call(func=ast.Name("range"), args=bounds), body=body):
                changed = _names(body, ast.Store) & _names(bounds, ast.Load)
                assert not changed, f"{name}:{node.lineno} changes {changed}"


def _names(nodes: Iterable[ast.AST], context: type[ast.expr_context]) -> set[str]:
    return {
        one.id
        for node in nodes
        for one in ast.walk(node)
        if isinstance(one, ast.Name) and isinstance(one.ctx, context)
    }


def test_the_build_under_test_is_as_new_as_its_sources() -> None:
    assert this_build().stale == (), str(this_build())


def test_a_module_edited_during_a_build_is_older_in_it_than_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_unless(importable("mypyc"), "mypyc is not installed")
    root = copy_of_sources(tmp_path, "*.so", "compiled_sources.json")
    edited = root / source_path(HOT_MODULES[0]).relative_to(ROOT)

    def edit_instead(*args: object, **kwargs: object) -> list[object]:
        edited.write_text(edited.read_text() + "# edited\n")
        return []

    monkeypatch.setattr("mypyc.build.mypycify", edit_instead)
    monkeypatch.setenv("CC", "sh")
    monkeypatch.chdir(root)
    script = runpy.run_path(str(root / ".ci" / "compile.py"))
    (stamp,) = script["compile_into"](root)
    settings = script["_settings"]()
    settings.library_path().touch()
    assert settings.this_build().stale == (HOT_MODULES[0],)
    told = json.loads(stamp.read_text())
    assert told["sources"].keys() == set(HOT_MODULES)
    assert not told["trained"]
    assert not settings.this_build().trained
    script["compile_into"](root, root / "objects", script["COUNTED"])
    settings.library_path().touch()
    assert settings.this_build().trained


@pytest.mark.slow
def test_compiled_and_pure_builds_behave_alike(tmp_path: Path) -> None:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(os.environ.get("CC", compiler)) is None:
        unavailable(f"no C compiler ({compiler})")
    skip_unless(importable("mypyc"), "mypyc is not installed")
    pure = copy_of_sources(tmp_path / "pure", "*.so", "compiled_sources.json")
    compiled = copy_of_sources(tmp_path / "compiled")
    compile_it = [sys.executable, str(compiled / ".ci" / "compile.py")]
    # A build that is here and as new as its sources need not be made again: that takes minutes.
    if subprocess.run([*compile_it, "--is-fresh"]).returncode != 0:
        subprocess.run(compile_it, check=True, capture_output=True, timeout=COMPILE_S)
    of_pure, pure_build = transcript(pure, tmp_path / "of_pure")
    of_compiled, compiled_build = transcript(compiled, tmp_path / "of_compiled")
    assert pure_build == "pure Python"
    # A checkout may have a trained build.
    builds = (Build(compiled=True), Build(compiled=True, trained=True))
    assert compiled_build in map(str, builds)
    assert str(builds[0]) == f"compiled with mypyc ({len(HOT_MODULES)} modules)"
    for ours, theirs in zip(of_pure.splitlines(), of_compiled.splitlines(), strict=True):
        assert ours == theirs
