"""The probe tells a fault that is noticed from everything else that may become of one."""

from __future__ import annotations

from pathlib import Path

import attrs
import mutation_probe
import pytest
from mutation_probe import MUTATIONS, REPO, Mutation, Rotten, Tree, Verdict, check_list, judge

AREAS = (
    *("wire", "store", "ha", "broker", "namesrv", "dledger", "failover", "remoting", "security"),
    "services",
)
FAULT = Mutation(
    "adds-one",
    "subject/core.py",
    "return number + 1",
    "return number + 2",
    ("test_core.py",),
    "two and two are five",
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A tree with one function and one test."""
    root = tmp_path / "source"
    (root / "subject").mkdir(parents=True)
    (root / "subject" / "__init__.py").touch()
    (root / "subject" / "core.py").write_text("def f(number):\n    return number + 1\n")
    (root / "test_core.py").write_text(
        "from subject.core import f\n\ndef test_f():\n    assert f(1) == 2\n"
    )
    return root


def test_the_list_fits_the_sources() -> None:
    check_list(REPO, MUTATIONS)
    assert len(MUTATIONS) >= 20
    assert {mutation.file.split("/")[1] for mutation in MUTATIONS} == set(AREAS)
    for mutation in MUTATIONS:
        whole = (REPO / mutation.file).read_text()
        compile(whole.replace(mutation.before, mutation.after), mutation.file, "exec")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"before": "return number * 1"}, "its line is 0 times in subject/core.py, not once"),
        ({"before": "number"}, "its line is 2 times in subject/core.py, not once"),
        ({"before": ""}, "not once"),
        ({"file": "subject/gone.py"}, "its line is 0 times in subject/gone.py"),
        ({"after": FAULT.before}, "adds-one: changes nothing"),
        ({"tests": ("test_gone.py",)}, "there is no test_gone.py"),
    ],
)
def test_a_list_that_does_not_fit_is_refused(
    source: Path, change: dict[str, object], says: str
) -> None:
    check_list(source, [FAULT])
    with pytest.raises(Rotten, match=says):
        check_list(source, [attrs.evolve(FAULT, **change)])  # type: ignore[arg-type]
    with pytest.raises(Rotten, match="adds-one: named twice"):
        check_list(source, [FAULT, FAULT])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "test", "verdict"),
    [
        ("return number + 2", "assert f(1) == 2", Verdict.NOTICED),
        ("return number + 2", "assert f(1)", Verdict.SURVIVED),
        ("return number + 2\nimport nowhere", "assert f(1) == 2", Verdict.BROKEN),
        ("return number +", "assert f(1) == 2", Verdict.BROKEN),
        ("while True: pass", "assert f(1) == 2", Verdict.HUNG),
    ],
)
def test_what_becomes_of_a_fault(
    source: Path, tmp_path: Path, after: str, test: str, verdict: Verdict
) -> None:
    (source / "test_core.py").write_text(
        f"from subject.core import f\n\ndef test_f():\n    {test}\n"
    )
    tree = Tree(source, tmp_path / "copy")
    fault = attrs.evolve(FAULT, after=after)
    found, why = tree.probe(fault, *([2.0] if verdict is Verdict.HUNG else []))
    assert found is verdict, why
    # The fault is out again, and never was in the source.
    for root in (source, tree.root):
        assert FAULT.before in (root / FAULT.file).read_text()


@pytest.mark.slow
def test_a_run_without_any_test_proves_nothing(source: Path, tmp_path: Path) -> None:
    (source / "test_core.py").write_text("")
    assert Tree(source, tmp_path / "copy").probe(FAULT)[0] is Verdict.NO_TEST
    (source / "test_core.py").write_text(
        "import pytest\n\ndef test_f():\n    pytest.skip('not here')\n"
    )
    assert Tree(source, tmp_path / "other").probe(FAULT)[0] is Verdict.NO_TEST


@pytest.mark.slow
def test_tests_that_cannot_be_collected_notice_nothing(source: Path, tmp_path: Path) -> None:
    (source / "test_core.py").write_text("import nowhere\n")
    found, why = Tree(source, tmp_path / "copy").probe(FAULT)
    assert found is Verdict.BROKEN, why


@pytest.mark.slow
def test_a_fixture_that_breaks_notices_nothing(source: Path, tmp_path: Path) -> None:
    (source / "test_core.py").write_text(
        "import pytest\nfrom subject.core import f\n\n"
        "@pytest.fixture\ndef two():\n    assert f(1) == 2\n\n"
        "def test_f(two):\n    pass\n"
    )
    found, why = Tree(source, tmp_path / "copy").probe(FAULT)
    assert found is Verdict.BROKEN, why


def test_a_test_that_was_stopped_at_its_limit_is_a_hang(tmp_path: Path) -> None:
    report = tmp_path / "probe.xml"
    report.write_text(
        '<testsuite><testcase name="test_f"><failure message="Failed: Timeout (&gt;1.0s) from '
        'pytest-timeout."/></testcase></testsuite>'
    )
    assert judge(1, report, "")[0] is Verdict.HUNG


def test_a_name_that_no_fault_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        mutation_probe.main(["-k", "no-such-fault"])
    assert "no fault has 'no-such-fault' in its name" in capsys.readouterr().err


def test_the_faults_are_listed_with_what_they_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert mutation_probe.main(["--list", "-k", "filed-again"]) == 0
    shown = capsys.readouterr().out
    assert "trioha/store/dispatcher.py" in shown
    assert shown.count("\n") == 3
