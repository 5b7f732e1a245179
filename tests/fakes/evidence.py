"""Evidence in memory: a whole audit built by hand, for tests of judging and of rendering.

`EvidenceBuilder` adds launches, phases and answers one by one; `honest_audit()` is a complete audit of three
arms in which every gate passes, with arguments for what the candidate does differently.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from auditor.model.base import EnvVar
from auditor.model.baseline import Baseline
from auditor.model.completion import (
    Answer,
    Completion,
    ForcedPath,
    Prompt,
    RequestFailure,
    Score,
    TokenLogprob,
)
from auditor.model.judgement import Finding
from auditor.model.launch import Diary, Fingerprint, FingerprintPrompt, KernelChoice, Launch, Setting, Timing
from auditor.model.phase import ConcurrencySummary, Counters, Phase
from auditor.model.plan import (
    GATES,
    AccuracyPlan,
    AgreementPlan,
    Arm,
    AuditPlan,
    CorpusUse,
    Draft,
    EnginePlan,
    ForensicsPlan,
    InvariancePlan,
)

Status = Literal["running", "complete", "interrupted", "error"]
EOS = 2
RESOLVED = (
    Setting(name="attention_backend", value="FLASH_ATTN"),
    Setting(name="dtype", value="torch.bfloat16"),
    Setting(name="enable_prefix_caching", value="False"),
    Setting(name="max_num_batched_tokens", value="2048"),
    Setting(name="model", value="target"),
    Setting(name="tensor_parallel_size", value="1"),
)


class MemoryEvidence:
    """Implements auditor.model.record.Evidence over lists."""

    def __init__(self, plan: AuditPlan) -> None:
        self.plan = plan
        self.status: Status = "complete"
        self.error: str | None = None
        self.launches: list[Launch] = []
        self.phases: list[Phase] = []
        self.fingerprints: list[Fingerprint] = []
        self.scores: list[Score] = []
        self.forced: list[ForcedPath] = []
        self.findings: list[Finding] = []
        self.baseline: Baseline | None = None
        self.all_prompts: list[Prompt] = []
        self.by_phase: dict[str, list[Answer]] = {}
        self.reads = 0
        self.prompt_reads = 0

    def prompts(self, corpus: str | None = None) -> Sequence[Prompt]:
        self.prompt_reads += 1
        return [p for p in self.all_prompts if corpus is None or p.corpus == corpus]

    def answers(self, phase: str) -> Iterator[Answer]:
        self.reads += 1
        yield from self.by_phase.get(phase, ())


Reply = Sequence[int] | Mapping[str, Any] | RequestFailure
"""Token ids; or fields of a Completion; or a failure (phase, prompt and repeat are filled in)."""


class EvidenceBuilder:
    """Adds to one MemoryEvidence; each method returns what it made."""

    def __init__(self, plan: AuditPlan) -> None:
        self.evidence = MemoryEvidence(plan)
        self._at = 0.0

    def prompts(
        self, corpus: str, n: int, *, golds: Sequence[str] = (), max_tokens: int = 64
    ) -> list[Prompt]:
        made = [
            Prompt(
                id=f"{corpus}/{i}",
                corpus=corpus,
                token_ids=(1, 7, 100 + i),
                text=f"{corpus} prompt {i}",
                gold=golds[i] if i < len(golds) else None,
                max_tokens=max_tokens,
            )
            for i in range(n)
        ]
        self.evidence.all_prompts += made
        return made

    def launch(self, arm: str, attempt: int = 1, **fields: Any) -> Launch:
        launch_id = fields.pop("id", f"{arm}-{attempt}")
        values: dict[str, Any] = {
            "state": "stopped",
            "base_url": "http://127.0.0.1:1",
            "served_name": f"{launch_id}-nonce",
            "nonce": "nonce",
            "argv": ("python", "-m", "engine", "--port", "1"),
            "started_s": self._tick(),
            "ready_s": 30.0,
            "resolved": RESOLVED,
        }
        launch = Launch(id=launch_id, arm=arm, attempt=attempt, **{**values, **fields})
        self.evidence.launches.append(launch)
        return launch

    def fingerprint(self, launch: Launch, state: str = "A", shift: float = 0.0) -> Fingerprint:
        """Eight prompts; launches of one `state` and `shift` have equal bits."""
        prompts = tuple(
            FingerprintPrompt(
                prompt=f"fingerprint/{i}",
                token_ids=(5, 6, 7),
                bits="".join(
                    struct.pack(">f", -1.0 - i - j - shift - (0.125 if state != "A" else 0.0)).hex()
                    for j in range(3)
                ),
            )
            for i in range(8)
        )
        digest = hashlib.sha256("".join(p.bits for p in prompts).encode()).hexdigest()
        made = Fingerprint(launch=launch.id, digest=digest, prompts=prompts)
        self.evidence.fingerprints.append(made)
        return made

    def phase(
        self,
        phase_id: str,
        launch: Launch,
        replies: Mapping[str, Reply | Sequence[Reply]],
        *,
        drafts: tuple[int, int] | None = None,
        k: int = 3,
        **fields: Any,
    ) -> Phase:
        """`replies` by prompt id; a list of Reply where a prompt is repeated.

        `drafts`: speculation steps and accepted tokens of the phase; None: the server does not speculate.
        """
        answers = [
            self._answer(phase_id, prompt, repeat, reply)
            for prompt, given in replies.items()
            for repeat, reply in enumerate(_repeats(given))
        ]
        self.evidence.by_phase[phase_id] = answers
        stage, _, rest = phase_id.partition("/")
        parts = rest.split("/")
        start = self._tick()
        values: dict[str, Any] = {
            "stage": stage,
            "launch": launch.id,
            "arm": launch.arm,
            "corpus": parts[1] if stage in ("batch1", "accuracy") else None,
            "planned": len(answers),
            "state": "done",
            "started_s": start,
            "ended_s": start + 1.0,
            "generating_s": 1.0,
            "before": Counters(generation_tokens=0, preemptions=0),
            "after": Counters(
                generation_tokens=sum(len(a.token_ids) for a in answers if isinstance(a, Completion)),
                preemptions=0,
            ),
        }
        if stage == "load":
            level = int(parts[1].removeprefix("n"))
            values |= {
                "concurrency": level,
                "pass_no": int(parts[2].removeprefix("run")),
                "concurrency_summary": held(level),
            }
        if stage == "certify":
            values["pass_no"] = int(parts[1].removeprefix("pass"))
        if drafts is not None:
            values["before"] = speculated(1000, 1500, k)
            values["after"] = speculated(1000 + drafts[0], 1500 + drafts[1], k)
        phase = Phase(id=phase_id, **{**values, **fields})
        self.evidence.phases.append(phase)
        return phase

    def score(
        self,
        launch: Launch,
        arm: str,
        prompt: str,
        position: int,
        top: Mapping[int, float | None],
        **fields: Any,
    ) -> Score:
        """`top`: token to logprob; the best is `chosen` unless given."""
        ranked = sorted(top.items(), key=lambda item: -(item[1] if item[1] is not None else -1e9))
        values: dict[str, Any] = {
            "chosen": ranked[0][0] if ranked else None,
            "top": tuple(TokenLogprob(token=t, logprob=p) for t, p in ranked),
        }
        made = Score(launch=launch.id, pair_arm=arm, prompt=prompt, position=position, **{**values, **fields})
        self.evidence.scores.append(made)
        return made

    def _answer(self, phase: str, prompt: str, repeat: int, reply: Reply) -> Answer:
        start = self._tick()
        if isinstance(reply, RequestFailure):
            return RequestFailure(
                phase=phase,
                prompt=prompt,
                repeat=repeat,
                reason=reply.reason,
                detail=reply.detail,
                started_s=start,
                ended_s=start + 0.1,
            )
        fields: dict[str, Any] = dict(reply) if isinstance(reply, Mapping) else {"token_ids": tuple(reply)}
        ids = tuple(fields.pop("token_ids"))
        values: dict[str, Any] = {
            "token_ids": ids,
            "text": " ".join(f"t{i}" for i in ids),
            "finish_reason": "stop" if ids and ids[-1] == EOS else "length",
            "usage_prompt": 3,
            "usage_completion": len(ids),
            "prompt_ids_match": True,
            "started_s": start,
            "ended_s": start + 0.1,
        }
        return Completion(phase=phase, prompt=prompt, repeat=repeat, **{**values, **fields})

    def _tick(self) -> float:
        self._at += 1.0
        return self._at


def failure(reason: str = "timeout", detail: str = "no token within 600 s") -> RequestFailure:
    return RequestFailure(phase="", prompt="", reason=reason, detail=detail, started_s=0.0, ended_s=0.0)


def speculated(drafts: int, accepted: int, k: int = 3) -> Counters:
    return Counters(
        drafts=drafts,
        draft_tokens=drafts * k,
        accepted_tokens=accepted,
        accepted_per_position=tuple(accepted // k for _ in range(k)),
        preemptions=0,
        generation_tokens=drafts + accepted,
        prefix_cache_hits=0,
    )


def held(level: int, fraction: float = 1.0, achieved: int | None = None) -> ConcurrencySummary:
    return ConcurrencySummary(
        samples=20,
        rate_hz=12.0,
        mean_running=float(achieved or level),
        peak_running=achieved or level,
        max_waiting=0,
        held_fraction=fraction,
        achieved=achieved or level,
    )


def plan(**fields: Any) -> AuditPlan:
    values: dict[str, Any] = {
        "name": "test",
        "target": "target",
        "target_kind": "toy",
        "arms": (
            Arm(name="reference", role="reference"),
            Arm(name="control", role="control"),
            Arm(name="eagle3", role="candidate", draft=Draft(name="eagle3", method="eagle3", path="head")),
        ),
        "engine": EnginePlan(),
        "agreement": AgreementPlan(corpora=(CorpusUse(name="code"), CorpusUse(name="chat"))),
        "forensics": ForensicsPlan(),
        "invariance": InvariancePlan(levels=(2, 8), prompts=8),
        "accuracy": AccuracyPlan(corpus=CorpusUse(name="gsm8k", max_tokens=64)),
        "gates": GATES,
    }
    return AuditPlan(**{**values, **fields})


def answer_ids(prompt: int, length: int = 20) -> tuple[int, ...]:
    """What every honest server says to prompt number `prompt`: no loops, EOS last."""
    return (*((prompt * 31 + i * 7) % 89 + 10 for i in range(length - 1)), EOS)


def differing(ids: Sequence[int], position: int, token: int = 777) -> tuple[int, ...]:
    """`ids` with another token at the 1-based `position`, EOS kept."""
    return (*ids[: position - 1], token, *ids[position:])


def honest_audit(
    *,
    plan_fields: Mapping[str, Any] | None = None,
    n: int = 20,
    gsm8k: int = 100,
    certification: int = 20,
    arms: Iterable[str] = ("reference", "control", "eagle3"),
    candidate_fingerprint: str = "A",
    batch1: Mapping[str, Reply] | None = None,
    load: Mapping[str, Reply] | None = None,
    replay: Mapping[str, Reply] | None = None,
    wrong: Mapping[str, Iterable[int]] | None = None,
    acceptance: tuple[int, int] = (100, 180),
    cap: int = 64,
) -> EvidenceBuilder:
    """A complete audit.

    `batch1`, `load`, `replay`: replies of the candidate by prompt id instead of the honest ones.
    `cap`: most tokens of an agreement prompt.
    `wrong`: per arm the gsm8k items answered wrongly (default: every tenth, alike in all arms).
    """
    build = EvidenceBuilder(plan(**(plan_fields or {})))
    cert = [p.id for p in build.prompts("certification", certification)]
    corpora = {c: [p.id for p in build.prompts(c, n, max_tokens=cap)] for c in ("code", "chat")}
    graded = build.prompts("gsm8k", gsm8k, golds=[str(i) for i in range(gsm8k)])
    honest = {p.id: answer_ids(i) for i, p in enumerate(build.evidence.all_prompts)}
    loaded = [*corpora["code"][:4], *corpora["chat"][:4]]
    for arm in arms:
        candidate = arm not in ("reference", "control")
        drafts = acceptance if candidate else None
        launch = build.launch(arm)
        build.fingerprint(launch, candidate_fingerprint if candidate else "A")

        def said(
            prompts: Iterable[str], other: Mapping[str, Reply] | None, candidate: bool = candidate
        ) -> dict[str, Reply]:
            changed = (other or {}) if candidate else {}
            return {p: changed.get(p, honest[p]) for p in prompts}

        for run in (1, 2):
            build.phase(f"certify/{launch.id}/pass{run}", launch, said(cert, None), drafts=drafts)
        for corpus, prompts in corpora.items():
            build.phase(f"batch1/{launch.id}/{corpus}", launch, said(prompts, batch1), drafts=drafts)
        for level in build.evidence.plan.invariance.levels if build.evidence.plan.invariance else ():
            for run in (1, 2):
                build.phase(
                    f"load/{launch.id}/n{level}/run{run}",
                    launch,
                    said(loaded, {**(batch1 or {}), **(load or {})}),
                    drafts=drafts,
                )
        build.phase(
            f"replay/{launch.id}", launch, said(loaded, {**(batch1 or {}), **(replay or {})}), drafts=drafts
        )
        missed = set((wrong or {}).get(arm, range(0, gsm8k, 10)))
        build.phase(
            f"accuracy/{launch.id}/gsm8k",
            launch,
            {
                p.id: {
                    "token_ids": honest[p.id],
                    "text": f"So it is\n#### {int(p.gold or 0) + (i in missed)}",
                }
                for i, p in enumerate(graded)
            },
            drafts=drafts,
            concurrency=32,
            concurrency_summary=held(32),
        )
    calibrate(build, honest, [*corpora["code"][:8]])
    return build


def calibrate(
    build: EvidenceBuilder,
    honest: Mapping[str, Sequence[int]],
    prompts: Iterable[str],
    noise: float = 0.03125,
) -> None:
    """Rescores the reference's own tokens, and finds each of them best again."""
    reference, control = (_launch_of(build, arm) for arm in ("reference", "control"))
    for prompt in prompts:
        for position in range(1, len(honest[prompt]) + 1, 5):
            token = honest[prompt][position - 1]
            for launch in (reference, control):
                if launch is not None:
                    build.score(
                        launch,
                        "calibration",
                        prompt,
                        position,
                        {token: -0.25, 999: -1.75},
                        expected=token,
                        decode_logprob=-0.25 - noise,
                    )


def explain(
    build: EvidenceBuilder, prompt: str, position: int, reference: int, other: int, margin: float
) -> None:
    """Second-pass scores of both servers at one divergence.

    The reference's token is ahead by `margin` nats on the reference, behind by as much on the candidate.
    """
    for arm, ahead in (("reference", margin), ("eagle3", -margin)):
        launch = _launch_of(build, arm)
        assert launch is not None
        build.score(
            launch,
            "eagle3",
            prompt,
            position,
            {reference: -1.0 + min(ahead, 0.0), other: -1.0 - max(ahead, 0.0)},
        )


def sample_audit() -> EvidenceBuilder:
    """For rendering: what an audit can find, in one record.

    An exact tie, a near tie, an unexplained divergence, a post-stop leak, a control relaunched from another
    state, levels that do not repeat batch 1, and kernels tuned unequally.
    """
    ids = answer_ids
    build = honest_audit(
        batch1={
            "code/1": differing(ids(21), 5),
            "code/2": differing(ids(22), 9),
            "chat/3": differing(ids(43), 12),
            "chat/4": {"token_ids": (*ids(44), 55, 56), "finish_reason": "stop"},
        },
        load={"code/0": differing(ids(20), 7), "chat/0": differing(ids(40), 3)},
        gsm8k=200,
        wrong={"eagle3": [*range(0, 200, 10), 5, 15]},
    )
    explain(build, "code/1", 5, ids(21)[4], 777, 0.0)
    explain(build, "code/2", 9, ids(22)[8], 777, 0.125)
    explain(build, "chat/3", 12, ids(43)[11], 777, 4.1)
    other = build.launch("control", 0, id="control-0", diary=tuned("H=4", 5.7, 5.5))
    build.fingerprint(other, "B")
    cert = [p.id for p in build.evidence.prompts("certification")]
    for run in (1, 2):
        build.phase(
            f"certify/control-0/pass{run}", other, {p: differing(ids(i), 4) for i, p in enumerate(cert)}
        )
    build.evidence.launches.insert(1, build.evidence.launches.pop())
    return build


def tuned(chosen: str, h2: float = 5.5, h4: float = 5.7) -> Diary:
    """A diary with one Triton kernel timed at two configurations, microseconds."""
    timings = sorted((("H=2", h2), ("H=4", h4)), key=lambda item: item[1])
    return Diary(
        choices=(
            KernelChoice(
                kernel="_chunk_cumsum_fwd_kernel",
                key="(64, 256)",
                chosen=chosen,
                source="triton-cache",
                timings=tuple(Timing(config=c, microseconds=t) for c, t in timings),
            ),
        ),
        backends=(Setting(name="attention", value="FLASH_ATTN"),),
        kv_blocks=1000,
    )


def env(**variables: str) -> tuple[EnvVar, ...]:
    return tuple(EnvVar(name=name, value=value) for name, value in sorted(variables.items()))


def _launch_of(build: EvidenceBuilder, arm: str) -> Launch | None:
    return next((x for x in build.evidence.launches if x.arm == arm), None)


def _repeats(given: Reply | Sequence[Reply]) -> Sequence[Reply]:
    if isinstance(given, Sequence) and given and not isinstance(given[0], int):
        return given  # type: ignore[return-value]
    return (given,)  # type: ignore[return-value]
