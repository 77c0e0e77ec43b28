"""The wheels: the Pythons that are promised are the ones that are built for."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import wheels

PROJECT = tomllib.loads((wheels.ROOT / "pyproject.toml").read_text())


def test_the_promised_pythons_are_those_that_wheels_are_built_for() -> None:
    begin = "Programming Language :: Python :: "
    classifiers = PROJECT["project"]["classifiers"]
    promised = [one.removeprefix(begin) for one in classifiers if one.startswith(begin)]
    settings = PROJECT["tool"]["cibuildwheel"]
    assert tuple(promised) == wheels.VERSIONS
    assert settings["build"] == [f"cp{version.replace('.', '')}-*" for version in wheels.VERSIONS]
    # The hook of the wheel reads this variable.
    assert settings["environment"] == {"TRIOHA_COMPILE": "trained"}


def test_a_wheel_is_built_of_what_git_knows(tmp_path: Path) -> None:
    wheels.copy_sources(tmp_path)
    known = subprocess.run(
        ["git", "ls-files"], cwd=wheels.ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    copied = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert copied <= set(known)
    assert {"pyproject.toml", "trioha/compiled.py", ".ci/hatch_hook.py"} <= copied
    assert not [name for name in copied if name.endswith(".so")]
