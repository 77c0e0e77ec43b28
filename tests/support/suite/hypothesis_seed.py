"""One seed for all properties of a run, drawn from the commit; a run that fails tells it.

Each commit tries other examples, and every run of one commit tries the same ones.
`pytest --hypothesis-seed=N` takes another seed. `tests/conftest.py` takes the hooks below.
"""

from __future__ import annotations

import pytest
from hypothesis import settings

from support.suite.sizes import drawn_seeds

SEEDS = 1_000_000


def seed_of(config: pytest.Config) -> int:
    """Return the seed of this run."""
    return int(config.getoption("hypothesis_seed"))


# First: Hypothesis' own hook reads the option.
@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("hypothesis_seed") is None:
        config.option.hypothesis_seed = drawn_seeds("properties", 1).start % SEEDS
    # If CI is set, Hypothesis takes the same examples whatever the seed is.
    settings.register_profile("seeded", settings(), derandomize=False)
    settings.load_profile("seeded")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(f"properties: --hypothesis-seed={seed_of(config)}")
