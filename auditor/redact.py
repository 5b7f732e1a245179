"""What may not leave the machine in a record: secrets, and where this user keeps things.

Secrets are known by the name of the variable or flag that holds them; their values are then also removed
from free text (log tails, error replies). Folders are replaced by short labels, so that two records of the
same work read the same wherever it was done.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

HIDDEN = "<redacted>"
"""Always this long, so that not even a secret's length is told."""

_SECRET_NAME = re.compile(
    r"(?:^|[_\-.])(?:api|access|private|secret|auth)?[_\-]?(?:keys?|tokens?|secrets?|passwords?|passwd|pwd|credentials?|bearer)$"
    r"|secret|password|passwd|credential",
    re.IGNORECASE,
)
_NOT_SECRET = re.compile(r"^(?:old)?pwd$|(?:max|num|min|speculative|batched)[_\-].*tokens?$", re.IGNORECASE)
# A scheme is short: without a limit, a long word costs the square of its length. The user may be empty, and
# passwords hold @ as often as not.
_URL_PASSWORD = re.compile(r"(?P<head>[a-zA-Z][a-zA-Z0-9+.\-]{0,30}://[^/\s:@]*:)[^/\s]+(?=@)")
_KNOWN_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_\-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|AKIA[0-9A-Z]{16})\b"
    r"|(?<=[Bb]earer )[A-Za-z0-9._~+/\-]{8,}=*"
)
_SHORTEST = 6
"""Shorter values are not removed from free text: they would match by chance."""


def is_secret(name: str) -> bool:
    """Whether a variable or flag of this name holds a secret: …KEY, …TOKEN, …SECRET, …PASSWORD."""
    bare = name.lstrip("-").split("=", 1)[0]
    return bool(_SECRET_NAME.search(bare)) and not _NOT_SECRET.search(bare)


def redact_value(name: str, value: str) -> str:
    """`value`, or HIDDEN where `name` looks like a secret; passwords inside URLs are hidden always."""
    if is_secret(name):
        return HIDDEN if value else value
    return scrub_text(value)


def redact_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """The command line with the values of secret flags hidden (`--api-key X`, `--api-key=X`)."""
    shown: list[str] = []
    hiding = False
    for word in argv:
        if word.startswith("--"):
            name, mark, _ = word.partition("=")
            hiding = is_secret(name) and not mark
            shown.append(f"{name}={HIDDEN}" if is_secret(name) and mark else scrub_text(word))
        else:
            shown.append(HIDDEN if hiding else scrub_text(word))
    return tuple(shown)


def secrets_of(argv: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
    """The secret values that a command line and an environment hold, longest first."""
    found = {value for name, value in env.items() if is_secret(name)}
    hiding = False
    for word in argv:
        if word.startswith("--"):
            name, mark, value = word.partition("=")
            hiding = is_secret(name) and not mark
            if is_secret(name) and mark:
                found.add(value)
        elif hiding:
            found.add(word)
    return tuple(sorted((v for v in found if len(v) >= _SHORTEST), key=lambda v: (-len(v), v)))


def scrub_text(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` without these secrets, passwords in URLs and values shaped like well-known tokens."""
    for secret in secrets:
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, HIDDEN)
    text = _URL_PASSWORD.sub(rf"\g<head>{HIDDEN}", text)
    return _KNOWN_SHAPES.sub(HIDDEN, text)


class Places:
    """Replaces folders by labels: `<run>` for the run folder, `.` for the working directory, `~` for home."""

    def __init__(self, run_dir: Path | None = None) -> None:
        named = [(run_dir.resolve(), "<run>")] if run_dir is not None else []
        named += [(Path.cwd(), "."), (Path.home(), "~")]
        # the longest first, and never a folder so high up that its name occurs everywhere
        usable = {str(path): label for path, label in reversed(named) if len(path.parts) > 1}
        self._named = sorted(usable.items(), key=lambda pair: -len(pair[0]))
        self._patterns = [(re.compile(re.escape(path) + r"(?![\w\-])"), label) for path, label in self._named]

    def shorten(self, text: str) -> str:
        for pattern, label in self._patterns:
            text = pattern.sub(label, text)
        return text


def steers_the_engine(name: str) -> bool:
    """Whether an environment variable is worth recording: it can change what an engine computes or finds."""
    return name.startswith(_STEERING) or name in _STEERING_NAMES


_STEERING = (
    "VLLM_", "CUDA_", "NVIDIA_", "TRITON_", "TORCH", "PYTORCH_", "NCCL_", "CUBLAS", "OMP_", "KMP_", "MKL_",
    "OPENBLAS_",
    "HF_", "TRANSFORMERS_", "FLASHINFER_", "TOKENIZERS_", "INDUCTOR_", "ATEN_", "DNNL_",
    "ONEDNN_",
)  # fmt: skip
_STEERING_NAMES = frozenset(
    {"PYTHONPATH", "PYTHONHASHSEED", "PYTHONUNBUFFERED", "LD_PRELOAD", "LD_LIBRARY_PATH"}
)


def steering(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of `env` (default: this process's) that steer an engine, not redacted."""
    return {k: v for k, v in sorted((os.environ if env is None else env).items()) if steers_the_engine(k)}
