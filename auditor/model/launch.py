"""One server process from start to stop, and what fixes its numerics."""

from __future__ import annotations

from typing import Literal

from auditor.model.base import EnvVar, Model


class Setting(Model, frozen=True, kw_only=True):
    """One field of a server's resolved configuration, as text."""

    name: str
    value: str


class Timing(Model, frozen=True, kw_only=True):
    """One candidate that an autotuner timed."""

    config: str
    microseconds: float | None


class KernelChoice(Model, frozen=True, kw_only=True):
    """What an autotuner picked for one kernel at one key."""

    kernel: str
    key: str
    chosen: str
    source: Literal["triton-log", "triton-cache", "inductor-log", "flashinfer", "start-up"]
    timings: tuple[Timing, ...] = ()
    """All timed candidates, fastest first; empty when the log names the winner only."""


class Diary(Model, frozen=True, kw_only=True):
    """What a launch said about itself while it started."""

    choices: tuple[KernelChoice, ...] = ()
    backends: tuple[Setting, ...] = ()
    """Attention, MoE, Mamba, sampler backends named in the start-up log."""
    kv_blocks: int | None = None
    compile_hash: str | None = None
    warnings: tuple[str, ...] = ()


class FingerprintPrompt(Model, frozen=True, kw_only=True):
    prompt: str
    token_ids: tuple[int, ...]
    """Ids whose logprobs follow in `bits`, flattened in canonical order: prompt positions, then the generated
    token; within a position best logprob first, equal ones by id."""
    bits: str
    """Big-endian float32 bit patterns, eight hex digits a value, same order."""


class Fingerprint(Model, frozen=True, kw_only=True):
    """Float32 bits of prompt logprobs on fixed prompts. Equal is evidence for one launch state;
    it is necessary, not sufficient, because prefill kernels are not the decode kernels."""

    launch: str
    digest: str
    """sha256 over prompts, ids and bits."""
    prompts: tuple[FingerprintPrompt, ...]


class Launch(Model, frozen=True, kw_only=True):
    """A launch, or an attached server. Written again whenever its state changes; the last one counts."""

    id: str
    """`<arm>-<attempt>`, for example `control-2`; a restart for rescoring gets `<arm>-<attempt>r<k>`."""
    arm: str
    attempt: int
    """1-based over the audit, per arm."""
    state: Literal["starting", "ready", "stopped", "failed", "died", "attached"]
    argv: tuple[str, ...] = ()
    """Command with secrets redacted; empty for attached servers."""
    env: tuple[EnvVar, ...] = ()
    """Variables that the audit set or that steer the engine, redacted."""
    environ_checked: tuple[EnvVar, ...] = ()
    """The same variables as read back from the child's /proc/<pid>/environ."""
    pid: int | None = None
    port: int | None = None
    base_url: str
    served_name: str
    """Model name with the launch's nonce; for attached servers the name that they report."""
    nonce: str | None = None
    device: str = ""
    cache_from: str | None = None
    """Launch whose caches were copied (pin `snapshot`); None for cold caches."""
    restart_of: str | None = None
    log: str | None = None
    """Log file relative to the run folder."""
    started_s: float
    ready_s: float | None = None
    """Seconds from start to a served canary; None when it never got there."""
    ended_s: float | None = None
    engine_version: str | None = None
    resolved: tuple[Setting, ...] = ()
    """Resolved configuration: server_info, cache_config_info, start-up lines; sorted by name."""
    unverified: tuple[str, ...] = ()
    """What could not be read from this server, one phrase each."""
    diary: Diary = Diary()
    error: str | None = None
    """Why it failed or died: the engine's own last error line first."""
    log_tail: tuple[str, ...] = ()
    """Last lines of the log, only when it failed or died."""
