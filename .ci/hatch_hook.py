"""`TRIOHA_COMPILE=1 pip install .`: the wheel gets the hot modules compiled, beside the sources.

With TRIOHA_COMPILE=trained they are shaped by a load, as in the wheels that we publish.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_WANTED = os.environ.get("TRIOHA_COMPILE", "") not in ("", "0")
_TRAINED = os.environ.get("TRIOHA_COMPILE") == "trained"


class CompileHook(BuildHookInterface):
    """Does nothing unless asked to; an editable install is compiled by `just compile`."""

    def dependencies(self) -> list[str]:
        # mypy reads what the sources import.
        return ["mypy[mypyc]>=1.13", *self.metadata.core.dependencies] if _WANTED else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not _WANTED or version == "editable":
            return
        sys.path.insert(0, str(Path(self.root) / ".ci"))
        from compile import compile_into, compile_trained_into

        make = compile_trained_into if _TRAINED else compile_into
        self._made = tempfile.TemporaryDirectory(prefix="trioha-wheel-")
        out = Path(self._made.name)
        for path in make(out):
            build_data["force_include"][str(path)] = str(path.relative_to(out))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if _WANTED and version != "editable":
            self._made.cleanup()
