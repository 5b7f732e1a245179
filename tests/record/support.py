"""A small audit written through the Recorder, as a run would write it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from auditor.model.completion import Completion, Prompt, RequestFailure
from auditor.model.judgement import Judgement
from auditor.model.launch import Launch
from auditor.model.phase import Counters, Phase, Stage
from auditor.model.plan import AgreementPlan, Arm, AuditPlan, CorpusUse, Draft, EnginePlan
from auditor.model.record import AuditRecord, Environment, Event, Identity
from auditor.record.store import FinalStatus, Recorder

ARMS = ("reference", "control", "ngram")
ITEMS = 6
ENVIRONMENT = Environment(
    auditor_version="0",
    python="3.11",
    platform="test",
    cpu="test",
    cpu_count=2,
    memory_gib=1.0,
    devices=(),
    packages=(),
)


def plan() -> AuditPlan:
    draft = Draft(name="ngram", method="ngram", speculative_config='{"num_speculative_tokens": 3}')
    return AuditPlan(
        name="small",
        target="toy",
        arms=(
            Arm(name="reference", role="reference"),
            Arm(name="control", role="control"),
            Arm(name="ngram", role="candidate", draft=draft),
        ),
        engine=EnginePlan(),
        agreement=AgreementPlan(corpora=(CorpusUse(name="code"),)),
        gates=("certification", "agreement"),
    )


def prompts() -> tuple[Prompt, ...]:
    return tuple(
        Prompt(id=f"{corpus}/{n}", corpus=corpus, token_ids=(n, 7, 300), text=f"{corpus} {n}", max_tokens=8)
        for corpus in ("certification", "code")
        for n in range(ITEMS)
    )


def completion(phase: str, prompt: str, repeat: int = 0, at: float = 1.0) -> Completion:
    number = int(prompt.rsplit("/", 1)[1])
    return Completion(
        phase=phase,
        prompt=prompt,
        repeat=repeat,
        token_ids=(11, 12, number, 2),
        text="a\u2028b </script> \x1b[31m",
        finish_reason="stop",
        usage_prompt=3,
        usage_completion=4,
        prompt_ids_match=True,
        started_s=at,
        ended_s=at + 0.5,
    )


def failure(phase: str, prompt: str, at: float = 1.0) -> RequestFailure:
    return RequestFailure(phase=phase, prompt=prompt, reason="http-500", started_s=at, ended_s=at + 0.1)


def phase(stage: Stage, launch: str, corpus: str, ident: str, *, state: str = "done") -> Phase:
    return Phase(
        id=ident,
        stage=stage,
        launch=launch,
        arm=launch.rsplit("-", 1)[0],
        corpus=corpus,
        planned=ITEMS,
        pass_no=2 if ident.endswith("pass2") else 1,
        state="running" if state == "running" else "done",
        started_s=1.0,
        ended_s=None if state == "running" else 2.0,
        before=Counters(),
        after=Counters(),
    )


def steps() -> Iterator[tuple[str, object]]:
    """Everything that the run records, in order."""
    for arm in ARMS:
        launch = Launch(
            id=f"{arm}-1", arm=arm, attempt=1, state="ready", base_url="http://127.0.0.1:1",
            served_name=f"toy-{arm}", started_s=0.0, ready_s=0.5,
        )  # fmt: skip
        yield "event", Event(launch=launch)
    blocks: list[tuple[Stage, str, str]] = [
        ("certify", "certification", "certify/{launch}/pass1"),
        ("certify", "certification", "certify/{launch}/pass2"),
        ("batch1", "code", "batch1/{launch}/code"),
    ]
    for stage, corpus, pattern in blocks:
        for arm in ARMS:
            ident = pattern.format(launch=f"{arm}-1")
            yield "event", Event(phase=phase(stage, f"{arm}-1", corpus, ident, state="running"))
            for n in range(ITEMS):
                yield "answer", completion(ident, f"{corpus}/{n}")
            yield "event", Event(phase=phase(stage, f"{arm}-1", corpus, ident))


def write(recorder: Recorder, limit: int | None = None) -> None:
    for number, (kind, item) in enumerate(steps()):
        if number == limit:
            return
        if kind == "event":
            assert isinstance(item, Event)
            recorder.event(item)
        else:
            assert isinstance(item, Completion)
            if (item.prompt, item.repeat) not in recorder.done(item.phase):
                recorder.answer(item)


def judged(recorder: Recorder, status: FinalStatus, error: str | None = None) -> Judgement:
    from auditor.judge.judge import judge  # slow to import, and not needed by children that only write

    return judge(recorder.evidence(status, error))


def finish(recorder: Recorder, status: FinalStatus = "complete", error: str | None = None) -> AuditRecord:
    return recorder.finish(
        status=status,
        error=error,
        environment=ENVIRONMENT,
        identities=(Identity(name="target", source="toy", digest=None),),
        command=("audit", "equivalence"),
        judgement=judged(recorder, status, error),
    )


def finished_run(folder: Path) -> AuditRecord:
    with Recorder.create(folder, plan(), prompts()) as recorder:
        write(recorder)
        return finish(recorder)
