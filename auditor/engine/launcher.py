"""From a LaunchRequest to a server that has generated its first tokens, or to an error that says why not."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from typing import Literal

import msgspec
import psutil

from auditor.cancelling import through
from auditor.engine import model_infos, pins
from auditor.engine.base import Command, Engine, EngineInfo, LaunchRequest, Server
from auditor.engine.ports import LOOPBACK, answers, free_port, refuse_answers
from auditor.engine.process import EngineProcess, read_environ
from auditor.engine.readiness import Deadline, canary, check_name, read_log, wait_healthy
from auditor.engine.registry import engine_for
from auditor.errors import AuditError, EngineError
from auditor.model.base import EnvVar
from auditor.model.launch import Launch
from auditor.redact import HIDDEN, Places, redact_argv, redact_value, scrub_text, secrets_of, steering

_TAIL_LINES = 40
_STOP_GRACE_S = 15.0
_LOG = "engine.log"


class LaunchedServer(Server):
    """A server of ours. Ends with `stop()`, and with the auditor whatever happens to it."""

    def __init__(self, launch: Launch, process: EngineProcess, attempt: _Attempt) -> None:
        super().__init__(launch)
        self._process = process
        self._attempt = attempt
        self._cores = tuple(
            child for child in process.descendants() if attempt.engine.is_engine_process(*_identity(child))
        )

    def death(self) -> str | None:
        if self.launch.state != "ready":
            return self.launch.error or f"{self.launch.id} was stopped"
        gone = self._process.poll() is not None
        if not gone and all(_runs(core) for core in self._cores):
            return None
        exit_code = self._process.returncode
        what = (
            f"exited with status {exit_code}"
            if gone
            else "lost its engine process while its API still answers"
        )
        self.launch = self._attempt.died(self.launch, f"{self.launch.id} {what}")
        return self.launch.error

    async def stop(self) -> Launch:
        if self.launch.state == "ready":
            self.death()  # a server that died by itself is not recorded as stopped
        self._process.descendants()
        request = self._attempt.request
        # Cancelled or not: whoever comes after a stop cut short would take the server for one that died.
        cancelled = await through(self._process.stop(_STOP_GRACE_S), request.progress)
        if self.launch.state == "ready":
            self.launch = msgspec.structs.replace(self.launch, state="stopped", ended_s=request.clock.now())
            request.on_change(self.launch)
        if await through(asyncio.to_thread(self._attempt.scrub_log), request.progress) or cancelled:
            raise asyncio.CancelledError
        return self.launch


def _identity(process: psutil.Process) -> tuple[str, list[str]]:
    try:
        return process.name(), process.cmdline()
    except psutil.Error:
        return "", []


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


async def start(request: LaunchRequest) -> LaunchedServer:
    """Starts a server and returns it when it has served its canary. `request.on_change` gets every state.

    A start that failed for a passing reason (a port race inside the engine; memory profiled while another
    server was starting) is tried once more; the failed try is recorded as `<launch id>-failed`.
    Raises EngineError (PortShared when somebody else answers), after everything started is gone.
    """
    engine = engine_for(request.plan)
    info = await asyncio.to_thread(engine.inspect, request.plan)
    request.folder.mkdir(parents=True, exist_ok=True)
    if request.cache_from is not None and request.cache_from.resolve() != request.folder.resolve():
        await asyncio.to_thread(pins.copy_caches, request.cache_from, request.folder)
    model_infos.bring(info, request.folder)
    server = await _start(engine, info, request)
    # a few small files, and no moment at which the server could be lost
    model_infos.keep(info, request.folder)
    return server


async def _start(engine: Engine, info: EngineInfo, request: LaunchRequest) -> LaunchedServer:
    first = _Attempt(engine, info, request, earlier=None)
    try:
        return await first.run()
    except EngineError as error:
        kind = first.passing
        if kind is None:
            raise
        why = {
            "port": "a port race inside the engine's own initialisation, not the port of its API",
            "memory": "no memory left for the KV cache while other servers were starting or running",
        }[kind]
        request.progress(f"{request.launch_id}: {why}; starting once more")
        first.keep_as_failed()
        second = _Attempt(engine, info, request, earlier=f"first try failed: {why} ({error.seen})")
        return await second.run()


class _Attempt:
    """One try of one launch: spawn, wait, check, read back."""

    def __init__(
        self, engine: Engine, info: EngineInfo, request: LaunchRequest, *, earlier: str | None
    ) -> None:
        self.engine, self.info, self.request, self.earlier = engine, info, request, earlier
        self.passing: Literal["port", "memory"] | None = None
        self._places = Places(request.run_dir)
        self.log = request.folder / _LOG
        nonce = secrets.token_hex(6)
        self.port = free_port()
        self.command: Command = engine.command(request, info, self.port, f"{request.arm.name}-{nonce}")
        self._secrets = secrets_of(self.command.argv, self.command.env)
        self.launch = Launch(
            id=request.launch_id,
            arm=request.arm.name,
            attempt=request.attempt,
            state="starting",
            argv=self._shown_argv(),
            env=self._shown_env(steering(self.command.env)),
            port=self.port,
            base_url=f"http://{LOOPBACK}:{self.port}",
            served_name=f"{request.arm.name}-{nonce}",
            nonce=nonce,
            device=request.device or ("cpu" if info.cpu else ""),
            cache_from=request.cache_from.name if request.cache_from else None,
            restart_of=request.restart_of,
            log=str(self.log.relative_to(request.run_dir)),
            started_s=request.clock.now(),
            engine_version=info.version,
        )

    # ---------------------------------------------------------------- what is recorded

    def _shown_argv(self) -> tuple[str, ...]:
        return tuple(
            self._places.shorten(scrub_text(w, self._secrets)) for w in redact_argv(self.command.argv)
        )

    def _shown_env(self, env: Mapping[str, str]) -> tuple[EnvVar, ...]:
        shown = {
            k: self._places.shorten(redact_value(k, scrub_text(v, self._secrets))) for k, v in env.items()
        }
        return tuple(EnvVar(name=k, value=v) for k, v in sorted(shown.items()))

    def _clean(self, text: str) -> str:
        return self._places.shorten(scrub_text(text, self._secrets))

    def _set(self, **changes: object) -> None:
        self.launch = msgspec.structs.replace(self.launch, **changes)
        self.request.on_change(self.launch)

    def _write_command(self) -> None:
        shown = {
            "argv": self.launch.argv,
            "env": {v.name: v.value for v in self.launch.env},
            "notes": self.command.notes,
            "engine": {"version": self.info.version, "cpu_build": self.info.cpu, **self.info.packages},
        }
        text = msgspec.json.format(msgspec.json.encode(shown), indent=2)
        (self.request.folder / "command.json").write_bytes(text + b"\n")

    def keep_as_failed(self) -> None:
        """The failed try stays in the record, under an id of its own."""
        kept = self.log.with_name("engine.first-try.log")
        self.log.replace(kept)
        self.launch = msgspec.structs.replace(
            self.launch,
            id=f"{self.launch.id}-failed",
            log=str(kept.relative_to(self.request.run_dir)),
        )
        self.request.on_change(self.launch)

    # ---------------------------------------------------------------- the sequence

    async def run(self) -> LaunchedServer:
        self._write_command()
        self._set()
        try:
            refuse_answers(self.port)
            process = EngineProcess.spawn(self.command.argv, self.command.env, self.log)
        except AuditError as error:
            self._failed(str(error))
            raise
        try:
            return await self._until_ready(process)
        except BaseException as error:
            process.descendants()
            cancelled = await through(process.stop(_STOP_GRACE_S), self.request.progress)
            self.scrub_log()
            if isinstance(error, EngineError):
                self.passing = self.engine.transient(read_log(self.log))
                self._failed(str(error))
            else:
                self._failed(f"stopped while it was starting ({type(error).__name__})")
            if cancelled:  # not the engine's error, after which a start may be tried once more
                raise asyncio.CancelledError from error
            raise

    async def _until_ready(self, process: EngineProcess) -> LaunchedServer:
        request, plan = self.request, self.request.plan
        self._set(pid=process.pid)

        def died() -> EngineError:
            return self._death(process, "while it was starting")

        deadline = Deadline(
            request.clock, self.log, plan.engine.start_timeout_s, plan.engine.silent_timeout_s
        )
        base_url, name = self.launch.base_url, self.launch.served_name
        await wait_healthy(
            process,
            base_url,
            deadline,
            request.clock,
            what=request.launch_id,
            died=died,
            progress=request.progress,
        )
        await check_name(base_url, name)
        lacking = await canary(
            process,
            base_url,
            name,
            self.engine.canary(request.arm),
            timeout_s=plan.engine.request_timeout_s,
            died=lambda: self._death(process, "at its first completion, after /health was fine"),
        )
        ready_s = request.clock.now() - self.launch.started_s
        await self._read_back(process, ready_s, lacking)
        return LaunchedServer(self.launch, process, self)

    async def _read_back(self, process: EngineProcess, ready_s: float, lacking: str | None) -> None:
        log = read_log(self.log, 64 << 20)
        set_env = steering(self.command.env)
        settings, unverified, version = await self.engine.resolved(self.launch.base_url, None, log, set_env)
        settings = tuple(msgspec.structs.replace(s, value=self._clean(s.value)) for s in settings)
        diary = await asyncio.to_thread(self.engine.diary, self.log, self.request.folder)
        environ, covered = self._environ(process, set_env)
        unverified = (*unverified, *covered, *([lacking] if lacking else []))
        blocks = next((s.value for s in settings if s.name == "cache_config.num_gpu_blocks"), None)
        diary = msgspec.structs.replace(
            diary,
            kv_blocks=int(blocks) if blocks is not None and blocks.isdigit() else diary.kv_blocks,
            warnings=tuple(map(self._clean, (*([self.earlier] if self.earlier else []), *diary.warnings))),
        )
        self._set(
            state="ready",
            ready_s=ready_s,
            environ_checked=environ,
            resolved=settings,
            unverified=tuple(map(self._clean, unverified)),
            engine_version=version or self.info.version,
            diary=diary,
        )

    def _environ(
        self, process: EngineProcess, names: Mapping[str, str]
    ) -> tuple[tuple[EnvVar, ...], tuple[str, ...]]:
        """The variables as the server has them, those that a helper process has otherwise listed apart; and
        what could not be read: a helper that sets a long title overwrites its own environment."""
        own = read_environ(process.pid)
        if own is None:
            return (), ("the environment of the server process",)
        shown = {k: own[k] for k in names if k in own}
        covered: set[str] = set()
        for child in process.descendants():
            name, argv = _identity(child)
            if not self.engine.is_engine_process(name, argv):
                continue
            env = read_environ(child.pid) or {}
            if "PATH" in own and "PATH" not in env:
                covered.add(f"the environment of {argv[0] if argv else name}")
            else:
                shown |= {f"{k} [{name}]": env.get(k, "(absent)") for k in names if env.get(k) != own.get(k)}
        return self._shown_env(shown), tuple(sorted(covered))

    # ---------------------------------------------------------------- failures

    def scrub_log(self) -> None:
        """Takes the secrets out of the log of a process that is gone; the engine wrote it by itself."""
        try:
            text = self.log.read_bytes()
            clean = text
            for secret in self._secrets:
                clean = clean.replace(secret.encode(), HIDDEN.encode())
            if clean != text:
                self.log.write_bytes(clean)
        except OSError as error:
            self.request.progress(f"{self.launch.log} could not be cleared of secrets ({error.strerror})")

    def tail(self) -> tuple[str, ...]:
        return tuple(self._clean(line)[:2000] for line in read_log(self.log)[-_TAIL_LINES:])

    def quote(self) -> str:
        """The engine's own last words, for a message."""
        log = read_log(self.log)
        error = self.engine.last_error(log)
        if error is None:
            error = next((line.strip() for line in reversed(log) if line.strip()), "its log is empty")
        return self._clean(error)[:500]

    def _death(self, process: EngineProcess, when: str) -> EngineError:
        quote = self.quote()
        if self.engine.transient(read_log(self.log)) == "port" and not answers(self.port):
            quote += f" (a port inside the engine: its API port {self.port} was free)"
        code = process.poll()
        end = "answered with an engine error" if code is None else f"exited with status {code}"
        return EngineError(
            f"{self.request.launch_id} {end} {when}: {quote}",
            expected="a server that stays up",
            todo=f"read {self.launch.log}; the command is beside it in command.json",
        )

    def _failed(self, reason: str) -> None:
        self._set(
            state="failed", error=self._clean(reason), log_tail=self.tail(), ended_s=self.request.clock.now()
        )

    def died(self, launch: Launch, what: str) -> Launch:
        """`launch` as died, recorded."""
        self.launch = launch
        self._set(
            state="died",
            error=f"{what}: {self.quote()}",
            log_tail=self.tail(),
            ended_s=self.request.clock.now(),
        )
        return self.launch
