"""Choice of Java, with stand-ins for Java: scripts that answer `-version`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from trioha.analysis.schema import AnalysisError
from trioha.analysis.spark.java import find_java

MODULE = "--add-modules=jdk.incubator.vector"


def java(home: Path, version: str, *, has_module: bool = True) -> Path:
    """A home whose java tells this version, and its arguments on stdout."""
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    lacks = f'for a do [ "$a" = {MODULE} ] && echo no such module >&2 && exit 1; done\n'
    command.write_text(
        "#!/bin/sh\n"
        + ("" if has_module else lacks)
        + f"echo 'openjdk version \"{version}\"' >&2\n"
        + 'for a do echo "$a"; done\n'
    )
    command.chmod(0o755)
    return home


@pytest.fixture
def nowhere(tmp_path: Path) -> Path:
    return tmp_path / "nothing"


def test_java_home_comes_first(tmp_path: Path) -> None:
    home = java(tmp_path / "named", "17.0.1")
    java(tmp_path / "jvm" / "java-21", "21.0.1")
    found = find_java(
        {"JAVA_HOME": str(home), "PATH": ""}, jvm_directory=tmp_path / "jvm", packaged=tmp_path
    )
    assert (found.home, found.version, found.source) == (home, 17, "JAVA_HOME")
    assert not found.is_shimmed


def test_an_old_java_is_passed_over_and_told(tmp_path: Path, nowhere: Path) -> None:
    old = java(tmp_path / "old", "1.8.0_392")
    path = java(tmp_path / "new", "21.0.2")
    found = find_java(
        {"JAVA_HOME": str(old), "PATH": str(path / "bin")}, jvm_directory=nowhere, packaged=nowhere
    )
    assert (found.version, found.source) == (21, "PATH")
    assert [(item.source, item.reason) for item in found.rejected] == [
        ("JAVA_HOME", "it is Java 8")
    ]


def test_the_newest_of_the_systems_javas_is_taken(tmp_path: Path, nowhere: Path) -> None:
    for name, version in (("java-1.17.0-openjdk", "17.0.1"), ("temurin-25-jdk", "25"), ("x", "11")):
        java(tmp_path / name, version)
    found = find_java({"PATH": ""}, jvm_directory=tmp_path, packaged=nowhere)
    assert found.version == 25


def test_only_old_javas_are_one_sentence(tmp_path: Path, nowhere: Path) -> None:
    old = java(tmp_path / "old", "11.0.2")
    with pytest.raises(AnalysisError) as caught:
        find_java({"JAVA_HOME": str(old), "PATH": ""}, jvm_directory=nowhere, packaged=nowhere)
    assert str(caught.value) == (
        f"Spark needs Java 17 or newer (JAVA_HOME has {old}: it is Java 11); install Java 17 or"
        " newer, or `pip install 'trioha[spark]'`, which brings one"
    )


def test_no_java_is_one_sentence(nowhere: Path) -> None:
    with pytest.raises(AnalysisError, match=r"^Spark needs Java, and there is none; install Java"):
        find_java({"PATH": ""}, jvm_directory=nowhere, packaged=nowhere)


def test_a_home_without_java_is_told(tmp_path: Path, nowhere: Path) -> None:
    with pytest.raises(AnalysisError, match=r"no bin/java in it"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": ""}, jvm_directory=nowhere, packaged=nowhere)


def test_a_java_without_the_module_runs_behind_a_shim(tmp_path: Path, nowhere: Path) -> None:
    slim = java(tmp_path / "slim home", "25.0.1", has_module=False)
    found = find_java({"PATH": ""}, jvm_directory=nowhere, packaged=slim, cache=tmp_path / "cache")
    assert found.is_shimmed
    assert found.runtime == slim
    arguments = ["-cp", "a b", MODULE, "--add-opens=x", "", "Main$1"]
    answer = subprocess.run(
        [found.home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    assert answer.stdout.splitlines() == [text for text in arguments if text != MODULE]
    again = find_java({"PATH": ""}, jvm_directory=nowhere, packaged=slim, cache=tmp_path / "cache")
    assert again.home == found.home


def test_an_unwritable_cache_is_not_the_end(tmp_path: Path, nowhere: Path) -> None:
    slim = java(tmp_path / "slim", "25.0.1", has_module=False)
    # Not even root makes a folder here.
    cache = Path("/sys/trioha")
    found = find_java({"PATH": ""}, jvm_directory=nowhere, packaged=slim, cache=cache)
    assert found.is_shimmed
    assert not cache.exists()


def test_a_file_in_place_of_the_cache_is_not_the_end(tmp_path: Path, nowhere: Path) -> None:
    slim = java(tmp_path / "slim", "25.0.1", has_module=False)
    (tmp_path / "cache").write_text("")
    found = find_java({"PATH": ""}, jvm_directory=nowhere, packaged=slim, cache=tmp_path / "cache")
    assert found.is_shimmed
