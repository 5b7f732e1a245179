"""Audits of arms whose truth is known: evidence drawn at random, judged by the real judge.

What an engine would have answered is drawn instead of asked; launches are repeated by the rule of
auditor/run/certify.py on certificates of auditor/judge/certify.py. Nothing else of an audit is imitated:
the evidence goes through judge() as a record would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from auditor.judge.certify import certificate
from auditor.judge.judge import judge
from auditor.model.judgement import Judgement
from auditor.model.launch import Launch
from auditor.model.plan import (
    GATES,
    AccuracyPlan,
    AgreementPlan,
    CertificationPlan,
    CorpusUse,
    GateName,
    InvariancePlan,
)
from tests.fakes.evidence import (
    EvidenceBuilder,
    MemoryEvidence,
    Reply,
    answer_ids,
    calibrate,
    differing,
    explain,
    held,
    plan,
)

CANDIDATE = "eagle3"
ACCEPTED = 100, 180
"""Speculation steps and accepted tokens of every phase of the candidate."""
OTHER_TOKEN = 777


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What is true of the arms, and how much of it the audit looks at. Rates are fractions."""

    gates: tuple[GateName, ...] = GATES
    same_prints: bool = False
    """Whether the candidate has the reference's bits; if not (EAGLE-3), the sequential test decides."""
    alike: float = 1.0
    """Chance that the candidate answers a certification prompt like the reference, both in one state."""
    other_state: float = 0.0
    """Chance that a launch comes up in another state than the reference."""
    alike_across: float = 0.3
    """Chance that two states answer a prompt alike."""
    attempts: int = 3
    hazard: float = 0.0
    """Chance, per generated token, that the candidate says another one at batch 1."""
    margin: float = 4.0
    """Nats between the two tokens where it does: 0 is an exact tie."""
    flips: tuple[float, float] = (0.0, 0.0)
    """Chance that a prompt is answered otherwise under load: reference, candidate."""
    discordance: float = 0.06
    """Share of problems that one arm alone solves."""
    difference: float = 0.0
    """Accuracy of the candidate minus that of the reference."""
    accuracy: float = 0.75
    """Of the reference."""
    certification: int = 64
    prompts: int = 24
    tokens: int = 20
    """Tokens of every answer."""
    loaded: int = 24
    """Prompts under load."""
    levels: tuple[int, ...] = (2, 8, 32)
    problems: int = 400
    margin_accuracy: float = 0.05


def audit(truth: Truth, seed: int) -> tuple[Judgement, MemoryEvidence]:
    """One audit. The same seed gives the same audit."""
    evidence = _Audit(truth, seed).run()
    return judge(evidence), evidence


class _Audit:
    def __init__(self, truth: Truth, seed: int) -> None:
        self.truth, self.rng = truth, np.random.default_rng(seed)
        self.build = EvidenceBuilder(_plan(truth))
        self.certification = self.build.prompts("certification", truth.certification)
        self.prompts = self.build.prompts("code", truth.prompts) if "agreement" in truth.gates else []
        golds = [str(i) for i in range(truth.problems)]
        self.problems = self.build.prompts("gsm8k", truth.problems, golds=golds)
        everything = self.build.evidence.all_prompts
        self.said = {p.id: answer_ids(i, truth.tokens) for i, p in enumerate(everything)}
        # The other state's answers: one draw an audit, so that launches in it agree with one another.
        self.across = {p.id: self._draw(truth.alike_across) for p in self.certification}

    def run(self) -> MemoryEvidence:
        truth = self.truth
        reference = self._launched("reference", 1, "A")
        control = self._certified("control", reference)
        candidate = self._certified(CANDIDATE, reference)
        exact = control is not None
        if exact:
            self._byte_exact(reference, 0)
            assert control is not None
            self._batch1(control, {})
        if exact and candidate is not None:
            self._byte_exact(candidate, 1)
        if "accuracy" in truth.gates:
            last = [x for x in self.build.evidence.launches if x.arm == CANDIDATE][-1]
            self._accuracy(reference, candidate or last)
        return self.build.evidence

    def _draw(self, chance: float) -> bool:
        return bool(self.rng.random() < chance)

    # ------------------------------------------------------------------ certification

    def _launched(self, arm: str, attempt: int, state: str) -> Launch:
        candidate = arm == CANDIDATE
        launch = self.build.launch(arm, attempt)
        self.build.fingerprint(launch, state, 0.0 if self.truth.same_prints or not candidate else 0.01)
        replies: dict[str, Reply] = {}
        for prompt in self.certification:
            alike = self.across[prompt.id] if state != "A" else True
            alike = alike and (not candidate or self._draw(self.truth.alike))
            ids = self.said[prompt.id]
            replies[prompt.id] = ids if alike else differing(ids, 4)
        for run in (1, 2):
            self.build.phase(
                f"certify/{launch.id}/pass{run}", launch, replies, drafts=ACCEPTED if candidate else None
            )
        return launch

    def _certified(self, arm: str, reference: Launch) -> Launch | None:
        for attempt in range(1, self.truth.attempts + 1):
            launch = self._launched(arm, attempt, "B" if self._draw(self.truth.other_state) else "A")
            if "certification" not in self.truth.gates:
                return launch
            state = certificate(reference, launch, self.build.evidence).state
            if state != "OTHER STATE":
                return launch
        return None

    # ------------------------------------------------------------------ batch 1 and load

    def _byte_exact(self, launch: Launch, side: int) -> None:
        changed: dict[str, Reply] = {}
        if side == 1 and self.truth.hazard:
            for prompt in self.prompts:
                at = int(self.rng.geometric(self.truth.hazard))
                if at <= self.truth.tokens:
                    ids = self.said[prompt.id]
                    changed[prompt.id] = differing(ids, at, OTHER_TOKEN)
                    explain(self.build, prompt.id, at, ids[at - 1], OTHER_TOKEN, self.truth.margin)
            calibrate(self.build, self.said, [p.id for p in self.prompts[:8]])
        self._batch1(launch, changed)
        if "invariance" not in self.truth.gates:
            return
        drafts = ACCEPTED if side else None
        solo: dict[str, Reply] = {
            p.id: changed.get(p.id, self.said[p.id]) for p in self.prompts[: self.truth.loaded]
        }
        for level in self.truth.levels:
            loaded = {
                prompt: differing(self.said[prompt], 2) if self._draw(self.truth.flips[side]) else reply
                for prompt, reply in solo.items()
            }
            for run in (1, 2):
                self.build.phase(f"load/{launch.id}/n{level}/run{run}", launch, loaded, drafts=drafts)
        self.build.phase(f"replay/{launch.id}", launch, solo, drafts=drafts)

    def _batch1(self, launch: Launch, changed: dict[str, Reply]) -> None:
        if self.prompts:
            said = {p.id: changed.get(p.id, self.said[p.id]) for p in self.prompts}
            drafts = ACCEPTED if launch.arm == CANDIDATE else None
            self.build.phase(f"batch1/{launch.id}/code", launch, said, drafts=drafts)

    # ------------------------------------------------------------------ accuracy

    def _accuracy(self, reference: Launch, candidate: Launch) -> None:
        truth = self.truth
        only = (truth.discordance + truth.difference) / 2, (truth.discordance - truth.difference) / 2
        chances = [truth.accuracy - only[1], only[0], only[1], 1.0 - truth.accuracy - only[0]]
        kinds = self.rng.choice(4, size=len(self.problems), p=chances)
        right = {"both": (0,), "candidate": (1,), "reference": (2,)}
        for launch, mine in ((reference, "reference"), (candidate, "candidate")):
            wanted = {*right["both"], *right[mine]}
            replies: dict[str, Reply] = {
                p.id: _graded(self.said[p.id], int(p.gold or 0), int(kind) in wanted)
                for p, kind in zip(self.problems, kinds, strict=True)
            }
            self.build.phase(
                f"accuracy/{launch.id}/gsm8k",
                launch,
                replies,
                drafts=ACCEPTED if mine == "candidate" else None,
                concurrency=32,
                concurrency_summary=held(32),
            )


def _graded(ids: Sequence[int], gold: int, right: bool) -> dict[str, Any]:
    return {"token_ids": ids, "text": f"#### {gold if right else gold + 1}"}


def _plan(truth: Truth) -> Any:
    gates = truth.gates
    return plan(
        gates=gates,
        certification=CertificationPlan(prompts=truth.certification, attempts=truth.attempts),
        agreement=AgreementPlan(corpora=(CorpusUse(name="code"),)) if "agreement" in gates else None,
        invariance=InvariancePlan(levels=truth.levels, prompts=truth.loaded)
        if "invariance" in gates
        else None,
        accuracy=AccuracyPlan(corpus=CorpusUse(name="gsm8k", max_tokens=64), margin=truth.margin_accuracy)
        if "accuracy" in gates
        else None,
    )
