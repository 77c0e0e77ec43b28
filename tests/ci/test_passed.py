"""The state of the sources, and parts of a release that have passed for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from gate import __main__ as program
from gate import passed, plan
from gate.passed import PassedParts, commit, differences, state_of_checkout
from gate.running import CommandFailed


def git(root: Path, *words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone with one commit."""
    root = tmp_path / "clone"
    (root / "docs").mkdir(parents=True)
    (root / "docs" / "testing.md").write_text("figures\n")
    (root / "broker.py").write_text("pass\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "all")
    monkeypatch.setattr(passed, "ROOT", root)
    return root


def test_a_clean_checkout_differs_in_nothing_from_its_commit(root: Path) -> None:
    assert differences() == ""
    assert len(commit()) == 40


def test_a_changed_file_and_the_content_of_a_new_one_make_another_state(root: Path) -> None:
    states = {state_of_checkout()}
    (root / "broker.py").write_text("...\n")
    states.add(state_of_checkout())
    new = root / "new file.py"
    for text in ("1\n", "2\n"):
        new.write_text(text)
        states.add(state_of_checkout())
    assert len(states) == 4
    (root / "link").symlink_to("nowhere")
    assert "untracked: link " in differences()


def test_files_that_a_run_writes_change_no_state_and_their_commit_neither(root: Path) -> None:
    before = state_of_checkout()
    (root / "docs" / "testing.md").write_text("other figures\n")
    (root / ".ci" / "timings").mkdir(parents=True)
    (root / ".ci" / "timings" / "gate.json").touch()
    assert differences() == ""
    assert state_of_checkout() == before
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "figures")
    assert state_of_checkout() == before
    (root / "broker.py").write_text("...\n")
    git(root, "commit", "-q", "-a", "-m", "another broker")
    assert state_of_checkout() != before


@pytest.mark.parametrize("file", ["docs/testing.md", "broker.py"])
def test_a_release_may_write_its_figures_and_nothing_else(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    file: str,
) -> None:
    monkeypatch.setattr(program, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(program, "OUT", tmp_path / "out")
    write = f"open({str(root / file)!r}, 'a').write('more')"
    coverage = plan.Script("coverage", "figures", 60, (sys.executable, "-c", write))
    monkeypatch.setattr(plan, "RELEASE", (coverage, plan.SAME_FILES))
    code = 0 if file == "docs/testing.md" else 1
    assert program.main(["release"]) == code
    # And nothing that has passed, or changed, is forgotten.
    assert program.main(["release", "--check"]) == code
    git(root, "commit", "-q", "-a", "-m", "what the release wrote")
    assert program.main(["release", "--check"]) == code
    assert ("not passed: coverage, files" in capfd.readouterr().out) == bool(code)


def test_an_archive_of_the_files_is_no_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passed, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    for ask in (commit, differences, state_of_checkout):
        with pytest.raises(CommandFailed, match=r"not a git repository.*run in a clone"):
            ask()


def test_a_checkout_of_another_owner_is_an_error_with_its_cure(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # git's own switch for its tests: it takes every owner for another one.
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("HOME", str(root))
    with pytest.raises(CommandFailed, match=r"dubious ownership.*cure: git config --global"):
        differences()


def test_without_git_nothing_is_judged(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(root))
    with pytest.raises(CommandFailed, match="git is not installed"):
        differences()


def test_a_part_has_passed_for_one_state_of_the_sources(tmp_path: Path) -> None:
    parts = PassedParts(tmp_path, "abc")
    assert "sim" not in parts
    parts.add("sim")
    assert "sim" in PassedParts(tmp_path, "abc")
    assert "sim" not in PassedParts(tmp_path, "def")
    parts.forget("sim")
    assert "sim" not in parts
