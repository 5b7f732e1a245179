"""What an engine is to the auditor, so that a second engine is one more file beside `vllm.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from auditor.clock import Clock
from auditor.model.launch import Diary, Launch, Setting
from auditor.model.plan import Arm, AuditPlan


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """One server that is wanted."""

    plan: AuditPlan
    arm: Arm
    attempt: int
    """1-based over the audit, per arm."""
    launch_id: str
    run_dir: Path
    device: str = ""
    """Device ids of the placement, several joined by `+` for a tensor-parallel group; empty: as they are."""
    cache_from: Path | None = None
    """Folder of the launch whose caches are copied; None for cold caches."""
    restart_of: str | None = None
    memory_fraction: float | None = None
    """Share of the device's memory, where several servers share it."""
    clock: Clock
    on_change: Callable[[Launch], None]
    progress: Callable[[str], None]

    @property
    def folder(self) -> Path:
        """Folder of this launch: log, command, caches."""
        return self.run_dir / "launches" / self.launch_id


@dataclass(frozen=True, kw_only=True)
class EngineInfo:
    """What the engine's own interpreter says of it, without a server."""

    python: str
    version: str | None
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of the distributions that matter (torch, triton, …); absent ones are left out."""
    cpu: bool = False
    """A build for the CPU."""
    flags: frozenset[str] | None = None
    """Long options that the server knows; None when its help text could not be had."""


@dataclass(frozen=True, kw_only=True)
class Command:
    argv: tuple[str, ...]
    env: Mapping[str, str]
    """The whole environment of the child."""
    notes: tuple[str, ...] = ()
    """Defaults that the adapter chose by itself, one phrase each."""


Transient = Literal["port", "memory"]
"""Failures of a start that are nobody's fault and are tried once more: a port race inside the engine, and
memory profiled while another server of ours was starting."""


class Engine(Protocol):
    """Per-engine adapter. Stateless; everything else in this room is the same for all engines."""

    name: str

    def inspect(self, plan: AuditPlan) -> EngineInfo:
        """Asks the interpreter of the plan. Raises InvalidPlan when it has no such engine."""
        ...

    def check(self, plan: AuditPlan, arm: Arm, info: EngineInfo) -> None:
        """Raises InvalidPlan for flags that this engine does not know or that an audit cannot allow."""
        ...

    def command(self, request: LaunchRequest, info: EngineInfo, port: int, served_name: str) -> Command: ...

    def canary(self, arm: Arm) -> tuple[int, ...]:
        """Token ids of the first request: a length at which this engine has no known fault."""
        ...

    def width_args(self, width: int) -> tuple[str, ...]:
        """Flags under which a server without a drafter computes `width` tokens a forward pass, as one with
        `width` - 1 draft tokens does when it verifies."""
        ...

    def width_of(self, launch: Launch) -> int | None:
        """Tokens a forward pass that such a server says it takes at most; None where it does not say."""
        ...

    def self_draft(self, target: str, tokens: int) -> dict[str, Any]:
        """The speculative configuration in which `target` drafts `tokens` tokens for itself."""
        ...

    def is_engine_process(self, name: str, argv: Sequence[str]) -> bool:
        """Whether a process of this title and command line belongs to an engine of this kind."""
        ...

    def transient(self, log: Sequence[str]) -> Transient | None: ...

    def last_error(self, log: Sequence[str]) -> str | None:
        """The engine's own root error in its log, without prefixes; None when it names none."""
        ...

    async def resolved(
        self, base_url: str, api_key: str | None, log: Sequence[str], env: Mapping[str, str]
    ) -> tuple[tuple[Setting, ...], tuple[str, ...], str | None]:
        """(resolved configuration sorted by name, what could not be read, engine version)."""
        ...

    def diary(self, log: Path, cache_root: Path) -> Diary: ...


class Server:
    """A live server. `launch` is always its latest state. This base is a server that somebody else runs."""

    def __init__(self, launch: Launch, api_key: str | None = None) -> None:
        self.launch = launch
        self.api_key = api_key

    @property
    def base_url(self) -> str:
        return self.launch.base_url

    @property
    def model(self) -> str:
        """The served name, with the nonce where the audit launched it."""
        return self.launch.served_name

    def alive(self) -> bool:
        return self.death() is None

    def death(self) -> str | None:
        """Why the server is gone, quoting its own error; None while it lives (or cannot be observed)."""
        return None

    async def stop(self) -> Launch:
        """Ends the server if it is ours, and returns the final state. May be called again."""
        return self.launch
