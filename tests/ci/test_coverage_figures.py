"""The table of coverage, from what coverage.py reports."""

from __future__ import annotations

from coverage_figures import BEGIN, END, Covered, Share, by_package, replaced, section

GATE = {"trioha.ha": Covered(Share(9, 10), Share(3, 4)), "trioha.cli": Covered(Share(1, 2))}
RELEASE = {"trioha.ha": Covered(Share(10, 10), Share(4, 4))}


def file(*figures: int) -> dict[str, dict[str, int]]:
    names = ("covered_lines", "num_statements", "covered_branches", "num_branches")
    return {"summary": dict(zip(names, figures, strict=True))}


def test_files_are_summed_by_package() -> None:
    files = {
        "trioha/ha/replicas.py": file(8, 10, 3, 4),
        "trioha/ha/__init__.py": file(1, 1, 0, 0),
        "trioha/config.py": file(5, 5, 2, 2),
        "console/trioha_console/screens/main.py": file(1, 2, 0, 2),
    }
    assert by_package(files) == {
        "trioha.ha": Covered(Share(9, 11), Share(3, 4)),
        "trioha.config": Covered(Share(5, 5), Share(2, 2)),
        "trioha_console.screens": Covered(Share(1, 2), Share(0, 2)),
    }


def test_the_table_has_a_row_for_each_package_and_their_sum() -> None:
    rows = section(["quick"], {"gate": GATE, "release": RELEASE}).splitlines()[4:]
    assert rows == [
        "| trioha.cli | 50.0% | - | - | - |",
        "| trioha.ha | 90.0% | 75.0% | 100.0% | 100.0% |",
        "| all | 83.3% | 75.0% | 100.0% | 100.0% |",
    ]


def test_the_table_replaces_the_one_before() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = replaced(page, "new")
    assert once == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    assert replaced(once, "new") == once
