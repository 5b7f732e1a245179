"""One run boiled down to what a later run is compared with. Pure: from the figures of its judgement."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from auditor.judge import invariance
from auditor.judge.activity import activity
from auditor.judge.figures import Figures
from auditor.model.baseline import (
    AcceptanceWindow,
    ArmState,
    CorpusPrompts,
    DivergenceMark,
    IdentityDigest,
    LoadMarks,
    Marks,
    Snapshot,
)
from auditor.model.completion import Prompt
from auditor.model.launch import Diary, Launch, Setting
from auditor.model.phase import Phase
from auditor.model.plan import AuditPlan

Digests = dict[str, tuple[str, str]]
"""By prompt id: (corpus label, digest)."""
_GRADE = {"correct": "c", "wrong": "w", "no-answer": "n", "truncated": "t", "error": "-"}
_NO_SETTINGS = ("name", "target", "target_kind", "arms", "baseline")
"""Parts of the plan that other fields of the snapshot stand for."""
_PATHS = ("path", "python")


def snapshot(figures: Figures, identities: Sequence[IdentityDigest] = ()) -> Snapshot:
    """What the evidence of one run shows; `identities` are not part of the evidence."""
    scene, plan = figures.scene, figures.scene.plan
    digests = {p.id: (p.corpus, prompt_digest(p)) for p in scene.evidence.prompts()}
    prompts = _prompts(figures, digests)
    return Snapshot(
        name=plan.name,
        status=scene.evidence.status,
        target_kind=plan.target_kind,
        identities=tuple(identities),
        plan=tuple(_settings(plan)),
        scored=plan.forensics is not None,
        margin=plan.accuracy.margin if plan.accuracy else None,
        arms=tuple(_states(figures)),
        prompts=tuple(prompts.values()),
        agreement=tuple(_agreement(figures, prompts)),
        grades=tuple(_grades(figures, prompts)),
        load=tuple(_load(figures)),
        acceptance=tuple(_acceptance(figures, digests)),
        divergences=tuple(
            DivergenceMark(arm=d.arm, prompt=d.prompt, cls=d.cls, drafter_free=bool(d.drafter_free_flip))
            for d in figures.divergences
        ),
    )


def prompt_digest(prompt: Prompt) -> str:
    """64 bits over everything that makes two requests the same work."""
    state = hashlib.sha256(array("q", prompt.token_ids).tobytes())
    state.update(repr((prompt.max_tokens, prompt.gold)).encode())
    return state.hexdigest()[:16]


def _prompts(figures: Figures, digests: Digests) -> dict[str, CorpusPrompts]:
    """By label the prompts of the corpora that agreement and accuracy used."""
    labels = [pair.corpus for pairs in figures.pairs.values() for pair in pairs]
    labels += [g.phase.corpus for g in figures.graded.values() if g.phase.corpus is not None]
    ids: dict[str, list[str]] = {label: [] for label in labels}
    for prompt, (label, _) in digests.items():
        if label in ids:
            ids[label].append(prompt)
    return {
        label: CorpusPrompts(corpus=label, ids=tuple(mine), digests=tuple(digests[i][1] for i in mine))
        for label, mine in ids.items()
    }


def _grades(figures: Figures, prompts: dict[str, CorpusPrompts]) -> Iterator[Marks]:
    for arm, graded in figures.graded.items():
        corpus = graded.phase.corpus
        if corpus is not None:
            found = (graded.grades.get(i) for i in prompts[corpus].ids)
            marks = "".join("-" if g is None else _GRADE[g.status] for g in found)
            yield Marks(arm=arm, corpus=corpus, marks=marks)


def _agreement(figures: Figures, prompts: dict[str, CorpusPrompts]) -> Iterator[Marks]:
    for arm, pairs in figures.pairs.items():
        for pair in pairs:
            differing = {key[0] for key in pair.differing}
            ids = prompts[pair.corpus].ids
            marks = "".join("1" if i in pair.agreed else "0" if i in differing else "-" for i in ids)
            yield Marks(arm=arm, corpus=pair.corpus, marks=marks)


def _load(figures: Figures) -> Iterator[LoadMarks]:
    for arm, launch in figures.chosen.items():
        for level, found in invariance.levels(figures.scene, figures.answers, launch, False).items():
            prompts = tuple(sorted(found.steady))
            yield LoadMarks(
                arm=arm,
                level=level,
                held=found.figures.held,
                prompts=prompts,
                marks="".join("1" if found.steady[p] else "0" for p in prompts),
            )


def _acceptance(figures: Figures, digests: Digests) -> Iterator[AcceptanceWindow]:
    for arm in figures.scene.plan.candidates:
        launch = figures.chosen.get(arm.name)
        if launch is None:
            continue
        family = figures.scene.family(launch)
        by_kind: dict[str, list[Phase]] = {}
        for phase in figures.scene.evidence.phases:
            if phase.launch in family and phase.state == "done" and phase.stage != "calibrate":
                by_kind.setdefault(_kind(phase), []).append(phase)
        for kind, phases in by_kind.items():
            yield _window(figures, arm.name, kind, phases, digests)


def _kind(phase: Phase) -> str:
    if phase.stage in ("batch1", "accuracy"):
        return f"{phase.stage}/{phase.corpus}"
    return f"load/n{phase.concurrency}" if phase.stage == "load" else phase.stage


def _window(
    figures: Figures, arm: str, kind: str, phases: Sequence[Phase], digests: Digests
) -> AcceptanceWindow:
    found = [activity(p, True) for p in phases]
    whole = all(a.drafts is not None and a.accepted is not None for a in found)
    asked: set[str] = set()
    for phase in phases:
        index = figures.answers.index(phase.id)
        asked.update(key[0] for key in (*index.entries, *index.failures))
    load = figures.scene.plan.invariance
    state = hashlib.sha256(repr(load.max_tokens if load and phases[0].stage == "load" else None).encode())
    for digest in sorted(digests[i][1] for i in asked if i in digests):
        state.update(digest.encode())
    return AcceptanceWindow(
        arm=arm,
        kind=kind,
        drafts=sum(a.drafts or 0 for a in found) if whole else None,
        accepted=sum(a.accepted or 0 for a in found) if whole else None,
        work=state.hexdigest()[:16],
    )


def _states(figures: Figures) -> Iterator[ArmState]:
    for arm in figures.scene.plan.arms:
        launch = figures.chosen.get(arm.name)
        if launch is None:
            continue
        certificate, fingerprint = figures.certificate(arm.name), figures.scene.fingerprint(launch)
        yield ArmState(
            arm=arm.name,
            role=arm.role,
            attempts=len(figures.scene.served(arm.name)),
            state=certificate.state if certificate else None,
            fingerprint=fingerprint.digest if fingerprint else None,
            launch=_bare(launch),
        )


def _bare(launch: Launch) -> Launch:
    diary = Diary(backends=launch.diary.backends, kv_blocks=launch.diary.kv_blocks)
    return msgspec.structs.replace(
        launch, diary=diary, environ_checked=(), log_tail=(), error=None, served_name="", base_url=""
    )


def _settings(plan: AuditPlan) -> Iterator[Setting]:
    for name, value in msgspec.to_builtins(plan).items():
        if name not in _NO_SETTINGS:
            yield from _flat(name, value)
    for arm in plan.arms:
        if arm.role == "candidate":
            yield from _flat(f"arms.{arm.name}.extra_args", arm.extra_args)
            spec = arm.draft.speculative_config if arm.draft else "{}"
            yield Setting(name=f"arms.{arm.name}.speculative_config", value=_without_path(spec))


def _flat(name: str, value: Any) -> Iterator[Setting]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in _PATHS:
                yield from _flat(f"{name}.{key}", item)
    elif (
        isinstance(value, list | tuple) and value and all(isinstance(x, dict) and "name" in x for x in value)
    ):
        for item in value:
            rest = {k: v for k, v in item.items() if k != "name"}
            yield from _flat(f"{name}.{item['name']}", rest)
    else:
        yield Setting(name=name, value=msgspec.json.encode(value).decode())


def _without_path(spec: str) -> str:
    """The speculative configuration without the folder of the head, whose digest is an identity."""
    config = msgspec.json.decode(spec, type=dict[str, Any])
    config.pop("model", None)
    return msgspec.json.encode(config, order="sorted").decode()
