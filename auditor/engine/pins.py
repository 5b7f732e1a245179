"""Pins: what makes a later launch tune its kernels as an earlier one did.

none      nothing.
snapshot  a later launch gets a private copy of an earlier launch's caches: no flag changes.
force     the first config instead of the fastest, and a deterministic Inductor: flags and variables change,
          so the product measured is another one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from auditor.engine.flags import has_flag, value_of
from auditor.errors import EngineError, InvalidPlan
from auditor.model.plan import Pin

VLLM_CACHE, TRITON_CACHE = "vllm-cache", "triton-cache"
_DETERMINISTIC = {"deterministic": True, "combo_kernels": False, "benchmark_combo_kernel": False}


def cache_env(folder: Path) -> dict[str, str]:
    """Cache roots of one launch. Never shared: sharing serialises warm-ups and reuses stale graphs."""
    root = folder.resolve()
    return {
        "VLLM_CACHE_ROOT": str(root / VLLM_CACHE),
        "TRITON_CACHE_DIR": str(root / TRITON_CACHE),
    }


def force_env(pin: Pin) -> dict[str, str]:
    return {"VLLM_TRITON_FORCE_FIRST_CONFIG": "1"} if pin == "force" else {}


def force_args(
    pin: Pin, args: Sequence[str], known: frozenset[str] | None, *, eager: bool
) -> tuple[str, ...]:
    """Flags of `force` on top of the user's `args` (merged into a --compilation-config given there, which is
    then to be left out: see `without_compilation_config`). Empty for other pins.

    Raises InvalidPlan when the user's --compilation-config is no JSON object.
    """
    if pin != "force":
        return ()
    extra: list[str] = []
    if not eager:  # without a compiler there is nothing to make deterministic
        extra += ["--compilation-config", json.dumps(_merged(args), sort_keys=True)]
    if (known is None or "--no-enable-flashinfer-autotune" in known) and not has_flag(
        args, "--enable-flashinfer-autotune", "--no-enable-flashinfer-autotune"
    ):
        extra.append("--no-enable-flashinfer-autotune")
    return tuple(extra)


def _merged(args: Sequence[str]) -> Mapping[str, object]:
    given = value_of(args, "--compilation-config")
    try:
        config = json.loads(given) if given is not None else {}
        if not isinstance(config, dict):
            raise ValueError("not an object")
        inductor = config.get("inductor_compile_config", {})
        return config | {"inductor_compile_config": dict(inductor) | _DETERMINISTIC}
    except (ValueError, TypeError) as error:
        raise InvalidPlan(
            f"--compilation-config {given} cannot be joined with --pin force ({error})",
            expected="a JSON object",
            todo="give it as JSON, or use --pin snapshot",
        ) from error


def copy_caches(source: Path, folder: Path) -> None:
    """Copies the caches of the launch folder `source` into `folder`, privately: no hard or symbolic links.

    A source without caches (its launch never tuned anything) leaves empty folders. Raises EngineError.
    """
    if not source.is_dir():
        raise EngineError(
            f"the launch folder {source.name} whose caches should be copied does not exist",
            expected="a launch of this run",
            todo="keep the folder launches/ of a run until it is over",
        )
    for name in (VLLM_CACHE, TRITON_CACHE):
        target = folder / name
        if target.exists():
            shutil.rmtree(target)
        if (source / name).is_dir():
            # a running server may delete its own temporary files meanwhile
            try:
                shutil.copytree(source / name, target, ignore_dangling_symlinks=True, ignore=_temporary)
            except shutil.Error as error:
                missing = all("No such file" in str(reason) for _, _, reason in error.args[0])
                if not missing:
                    raise EngineError(
                        f"the caches of {source.name} could not be copied ({error.args[0][0][2]})",
                        expected="readable files and free disk space",
                        todo="free some space, or use --pin none",
                    ) from error
        target.mkdir(parents=True, exist_ok=True)


def _temporary(folder: str, names: list[str]) -> set[str]:
    return {n for n in names if n.startswith("tmp.") or n.endswith((".lock", ".tmp", ".pid"))}
