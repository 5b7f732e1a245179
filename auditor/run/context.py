"""What every step of a run shares, and the two things that every step does: measure and fingerprint."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec.structs import replace

from auditor.clock import Clock
from auditor.engine.base import Server
from auditor.errors import EngineError
from auditor.measure.phases import PhaseSpec, run_phase
from auditor.measure.watch import summarise_record
from auditor.model.completion import Completion, RequestFailure
from auditor.model.launch import Fingerprint
from auditor.model.phase import ConcurrencySample, Phase
from auditor.model.plan import AuditPlan
from auditor.model.record import Event, Evidence, StageNote
from auditor.record.lazy import FrozenPrompts
from auditor.record.lines import cut_torn_line, read_lines
from auditor.record.store import Recorder
from auditor.report.progress import Progress
from auditor.run.fleet import Fleet
from auditor.run.stages import FINGERPRINT


@dataclass
class Context:
    plan: AuditPlan
    prompts: FrozenPrompts
    recorder: Recorder
    fleet: Fleet
    clock: Clock
    progress: Progress
    finished: dict[str, Phase] = field(default_factory=dict)
    """Phases that the record held when this process began: not measured again."""

    def evidence(self) -> Evidence:
        """The record so far, as judging sees it."""
        return self.recorder.evidence()

    def has_measured(self, spec: PhaseSpec) -> bool:
        return spec.id in self.finished

    async def measure(self, spec: PhaseSpec, server: Server) -> Phase:
        """One phase on one server. Raises EngineError when the server died in it; the phase is recorded."""
        if (phase := self.finished.get(spec.id)) is not None:
            return phase
        step = self.progress.start(spec.id, spec.planned)
        samples = self.recorder.run_dir / "launches" / spec.launch / "samples.jsonl"
        samples.parent.mkdir(parents=True, exist_ok=True)
        earlier = self.recorder.done(spec.id)
        if earlier and samples.exists():
            cut_torn_line(samples)
        try:
            with samples.open("ab") as file:
                phase = await run_phase(
                    spec,
                    lambda: self.fleet.client(server),
                    self.recorder,
                    self.clock,
                    done=earlier,
                    alive=server.death,
                    progress=lambda done, planned, in_flight, tokens: step.update(done, in_flight, tokens),
                    on_sample=lambda sample: write_sample(file, spec.id, sample),
                )
        finally:
            step.finish()
        if earlier and phase.concurrency_summary is not None:
            phase = self._concurrency_of_all(phase, samples)
        if (death := server.death()) is not None:
            raise EngineError(f"{server.launch.id} died during {spec.id}: {death}")
        if phase.state == "error":
            raise EngineError(f"{server.launch.id} failed during {spec.id}: {phase.reason}")
        return phase

    def _concurrency_of_all(self, phase: Phase, samples: Path) -> Phase:
        """A resumed phase with the samples of all processes that worked on it: whether a level was held is a
        matter of the whole phase."""
        assert phase.concurrency_summary is not None
        answers = self.evidence().answers(phase.id)
        whole = summarise_record(
            read_samples(samples, phase.id),
            [a for a in answers if isinstance(a, Completion)],
            phase.concurrency,
            self.clock,
        )
        # a rate over the pause between the processes would say nothing
        rate = phase.concurrency_summary.rate_hz
        phase = replace(phase, concurrency_summary=replace(whole, rate_hz=rate))
        self.recorder.event(Event(phase=phase))
        return phase

    async def fingerprint(self, server: Server, launch: str | None = None) -> Fingerprint | None:
        """Fingerprint `server` into the record, as that of `launch` where it continues one that has none.
        None (and a note) where the engine refuses it."""
        prompts = self.prompts.of(FINGERPRINT)
        if not prompts:
            return None
        started = self.clock.now()
        client = self.fleet.client(server)
        try:
            fingerprint = await client.fingerprint(prompts, launch or server.launch.id)
        finally:
            await client.close()
            self.note("fingerprint", server.launch.id, started)
        if isinstance(fingerprint, RequestFailure):
            if (death := server.death()) is not None:
                raise EngineError(f"{server.launch.id} died at its fingerprint: {death}")
            self.progress.note(
                f"{server.launch.id}: no fingerprint: {fingerprint.reason} {fingerprint.detail}"
            )
            return None
        self.recorder.event(Event(fingerprint=fingerprint))
        return fingerprint

    def note(self, what: str, subject: str, started: float) -> None:
        """Record a step that is no phase, from `started` to now."""
        self.recorder.event(
            Event(note=StageNote(what=what, subject=subject, started_s=started, ended_s=self.clock.now()))
        )


def read_samples(path: Path, phase: str) -> list[ConcurrencySample]:
    """The samples of one phase in a launch's samples.jsonl; a line torn by a kill is left out."""
    found = []
    for _, line in read_lines(path):
        sample = msgspec.json.decode(line, type=dict[str, Any])
        if sample.pop("phase") == phase:
            found.append(msgspec.convert(sample, ConcurrencySample))
    return found


def write_sample(file: IO[bytes], phase: str, sample: ConcurrencySample) -> None:
    """One line of launches/<id>/samples.jsonl: what the engine reported during `phase`."""
    file.write(msgspec.json.encode({"phase": phase, **msgspec.structs.asdict(sample)}) + b"\n")
