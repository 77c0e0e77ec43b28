"""Style, types, and the direction of imports: `python -m gate.static`."""

from __future__ import annotations

import subprocess
import sys

from gate.running import ROOT, VENV, environment

CHECKS = (
    ("ruff", "check"),
    ("ruff", "format", "--check"),
    ("mypy",),
    ("lint-imports",),
)


def main() -> int:
    """Run all of them; return 0 when all hold. They end with this process' group."""
    codes = []
    for program, *arguments in CHECKS:
        print(f"-- {program} {' '.join(arguments)}", flush=True)
        command = [str(VENV / program), *arguments]
        codes.append(subprocess.run(command, cwd=ROOT, env=environment(), check=False).returncode)
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
