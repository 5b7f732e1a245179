# ruff: noqa: E501
"""Records built by hand for tests of rendering: an audit in which something of every kind was found.

The figures are consistent with one another (intervals and p values were computed by auditor.stats for these
counts), but no engine produced them: they exist to be rendered.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from auditor.model.base import EnvVar
from auditor.model.completion import Completion, Prompt
from auditor.model.judgement import Divergence, Finding, Gate, Judgement, Verdict
from auditor.model.launch import Diary, Fingerprint, Launch, Setting
from auditor.model.phase import Counters, Phase
from auditor.model.plan import (
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
from auditor.model.record import AuditRecord, Environment, FileDigest, Identity, StageNote
from tests.fakes.evidence import MemoryEvidence
from tests.report.gold_judgement import CORPORA, HOSTILE, SIZES, TEXTS, USED, judgement

__all__ = ["CORPORA", "HOSTILE", "SIZES", "failing", "interrupted", "passing"]


def plan() -> AuditPlan:
    return AuditPlan(
        name="smollm2-eagle3",
        target="SmolLM2-135M-Instruct",
        target_kind="toy",
        arms=(
            Arm(name="reference", role="reference"),
            Arm(name="control", role="control"),
            Arm(
                name="eagle3",
                role="candidate",
                draft=Draft(name="eagle3", method="eagle3", path="heads/eagle3-v2"),
            ),
            Arm(name="ngram", role="candidate", draft=Draft(name="ngram", method="ngram")),
        ),
        engine=EnginePlan(args=("--dtype", "bfloat16", "--max-model-len", "8192"), devices=("0",)),
        agreement=AgreementPlan(corpora=tuple(CorpusUse(name=c, limit=SIZES[c]) for c in CORPORA)),
        forensics=ForensicsPlan(),
        invariance=InvariancePlan(levels=(2, 8, 32)),
        accuracy=AccuracyPlan(corpus=CorpusUse(name="gsm8k", max_tokens=512)),
    )


ARMS = ("reference", "control", "eagle3", "ngram")


def launches() -> tuple[Launch, ...]:
    def launch(
        id: str, arm: str, attempt: int, start: float, ready: float | None, end: float, **more: object
    ) -> Launch:
        values: dict[str, object] = {
            "state": "stopped",
            "argv": (
                "python",
                "-m",
                "vllm.entrypoints.openai.api_server",
                "--model",
                "target",
                "--port",
                "8101",
            ),
            "env": (
                EnvVar(name="HF_TOKEN", value="[redacted]"),
                EnvVar(name="VLLM_CACHE_ROOT", value="launches/x"),
            ),
            "environ_checked": (
                EnvVar(name="HF_TOKEN", value="[redacted]"),
                EnvVar(name="VLLM_CACHE_ROOT", value="launches/x"),
            ),
            "pid": 4100 + attempt,
            "port": 8101,
            "nonce": "3f9a",
            "device": "GPU 0",
            "log": f"launches/{id}/server.log",
            "engine_version": "vLLM 0.25.1",
            "resolved": (
                Setting(name="dtype", value="torch.bfloat16"),
                Setting(name="num_gpu_blocks", value="8192"),
            ),
            "unverified": ("the sampler backend is not named in the log",),
            "diary": Diary(kv_blocks=8192, compile_hash="c0ffee1234567890"),
        }
        values.update(more)
        return Launch(
            id=id,
            arm=arm,
            attempt=attempt,
            base_url="http://127.0.0.1:8101",
            served_name=f"{id}-3f9a",
            started_s=start,
            ready_s=ready,
            ended_s=end,
            **values,  # type: ignore[arg-type]
        )

    return (
        launch("reference-1", "reference", 1, 4.0, 135.2, 2950.0),
        launch(
            "control-1",
            "control",
            1,
            150.0,
            None,
            171.5,
            state="failed",
            error="ValueError: No available memory for the cache blocks",
            log_tail=(
                "INFO 11-30 21:40:15 [gpu_worker.py:298] Available KV cache memory: -1.52 GiB",
                "\x1b[31mERROR\x1b[0m 11-30 21:40:15 [core.py:700] EngineCore failed to start.",
                "ValueError: No available memory for the cache blocks",
            ),
            diary=Diary(),
        ),
        launch(
            "control-2",
            "control",
            2,
            175.0,
            128.0,
            420.0,
            diary=Diary(kv_blocks=8192, compile_hash="c0ffee1234567890"),
        ),
        launch("control-3", "control", 3, 425.0, 47.1, 2940.0, cache_from="reference-1"),
        launch("eagle3-1", "eagle3", 1, 480.0, 51.4, 2945.0, cache_from="reference-1"),
        launch("ngram-1", "ngram", 1, 540.0, 48.8, 2946.0, cache_from="reference-1"),
    )


def phases() -> tuple[Phase, ...]:
    out: list[Phase] = []

    def add(id: str, stage: str, arm: str, start: float, took: float, planned: int, **more: object) -> None:
        values: dict[str, object] = {"state": "done", "ended_s": start + took, "generating_s": took * 0.96}
        values.update(more)
        out.append(
            Phase(
                id=id,
                stage=stage,  # type: ignore[arg-type]
                launch=id.split("/")[1],
                arm=arm,
                planned=planned,
                started_s=start,
                before=Counters(),
                after=Counters(),
                **values,  # type: ignore[arg-type]
            )
        )

    for i, (arm, launch) in enumerate(USED.items()):
        base = 600.0 + 8 * i
        for run in (1, 2):
            add(f"certify/{launch}/pass{run}", "certify", arm, base + 40 * (run - 1), 34, 64, pass_no=run)
        at = base + 100
        for corpus in CORPORA:
            add(
                f"batch1/{launch}/{corpus}",
                "batch1",
                arm,
                at,
                SIZES[corpus] * 1.9,
                SIZES[corpus],
                corpus=corpus,
            )
            at += SIZES[corpus] * 1.9 + 10
        for level in (2, 8, 32):
            for run in (1, 2):
                add(
                    f"load/{launch}/n{level}/run{run}",
                    "load",
                    arm,
                    at,
                    30,
                    32,
                    concurrency=level,
                    pass_no=run,
                )
                at += 34
        add(f"replay/{launch}", "replay", arm, at, 50, 32)
        at += 60
        state = {"state": "void", "reason": "preemptions rose by 3"} if arm == "ngram" else {}
        add(
            f"accuracy/{launch}/gsm8k",
            "accuracy",
            arm,
            at,
            640,
            1319,
            corpus="gsm8k",
            concurrency=32,
            **state,
        )
    return tuple(out)


def evidence(
    the_plan: AuditPlan, the_phases: Sequence[Phase], divergent: Sequence[Divergence]
) -> MemoryEvidence:
    """Completions of the divergent prompts in the batch-1 phases."""
    made = MemoryEvidence(the_plan)
    made.phases += the_phases
    for d in divergent:
        made.all_prompts.append(
            Prompt(
                id=d.prompt,
                corpus=d.corpus,
                token_ids=(1, 2, 3),
                text=f"Question {d.prompt}?\nAnswer:",
                max_tokens=512,
            )
        )
        common = tuple(100 + i for i in range(d.position - 1))
        tail = tuple(range(500, 512))
        for arm, token, text in zip(
            ("reference", d.arm), (d.reference_token, d.other_token), TEXTS[d.prompt], strict=True
        ):
            ids = common if token is None else (*common, token, *tail)
            phase = f"batch1/{USED[arm]}/{d.corpus}"
            made.by_phase.setdefault(phase, []).append(
                Completion(
                    phase=phase,
                    prompt=d.prompt,
                    token_ids=ids,
                    text=text,
                    finish_reason="stop",
                    started_s=1.0,
                    ended_s=2.0,
                )
            )
    return made


def failing() -> tuple[AuditRecord, MemoryEvidence]:
    """An audit that found something of every kind."""
    the_plan, all_phases = plan(), phases()
    record = AuditRecord(
        status="complete",
        date="2026-01-02T03:04:05Z",
        command=("audit", "equivalence", "--draft", "heads/eagle3-v2", "--draft", "ngram", "--name", "it's quoted"),
        plan=the_plan,
        environment=Environment(
            auditor_version="0.1.0", python="3.11.9", platform="Linux-6.1-x86_64", cpu="Xeon 8480C", cpu_count=16,
            memory_gib=128.0, devices=("NVIDIA H200, driver 570.86, 139.8 GiB",),
            packages=(EnvVar(name="torch", value="2.13.0"), EnvVar(name="vllm", value="0.25.1")), git_commit="d8c84fd",
        ),
        identities=(
            Identity(name="target", source="SmolLM2-135M-Instruct", digest="ab" * 32,
                     files=(FileDigest(path="model.safetensors", size=269_060_552, sha256="cd" * 32),)),
            Identity(name="draft:eagle3", source="eagle3-v2", digest="ef" * 32, licence="apache-2.0"),
            Identity(name="corpus:gsm8k", source="packaged", digest=None),
        ),
        launches=launches(),
        fingerprints=tuple(Fingerprint(launch=x, digest="5eed" * 16, prompts=()) for x in USED.values()),
        phases=all_phases,
        scores=(),
        findings=(
            Finding(code="DRAFT-BOS-DRIFT", severity="warning", subject="eagle3", seen="the head's tokenizer adds no BOS",
                    expected="the target's, which does", remedy="retrain or set add_bos_token in the head's config"),
        ),
        notes=(StageNote(what="preflight", subject="host", started_s=0.0, ended_s=3.9),),
        resumed=(),
        files=(FileDigest(path="completions.jsonl", size=48_210_332, sha256="12" * 32),),
        judgement=judgement(all_phases),
    )  # fmt: skip
    return record, evidence(the_plan, all_phases, record.judgement.divergences)


def passing() -> tuple[AuditRecord, MemoryEvidence]:
    """Nothing wrong, a trained target, no divergence: most sections are at their quietest."""
    record, stored = failing()
    the_plan = replace(
        record.plan, target_kind="trained", invariance=None, gates=("certification", "agreement")
    )
    quiet = replace(
        record.judgement,
        divergences=(), findings=(), invariance=(), replay=(), noise_floor=None, calibration=(),
        agreement=tuple(a for a in record.judgement.agreement if a.corpus == "humaneval" and a.arm != "eagle3"),
        gates=(record.judgement.gates[0],),
        verdict=Verdict(name="PASS", exit_code=0, reason="2 of 2 gates passed.", limits=()),
    )  # fmt: skip
    return replace(record, plan=the_plan, findings=(), judgement=quiet), stored


def interrupted() -> tuple[AuditRecord, MemoryEvidence]:
    """Stopped before anything was measured."""
    record, _ = failing()
    empty = Judgement(
        gates=(Gate(name="certification", status="NOT RUN", figure="no launch", bound="SAME STATE", remedy="audit resume"),),
        verdict=Verdict(name="ERROR", exit_code=5, reason="The audit was interrupted during start-up.", limits=()),
    )  # fmt: skip
    bare = replace(
        record, status="interrupted", error="stopped by SIGINT", launches=record.launches[1:2], fingerprints=(), phases=(),
        findings=(), notes=(), identities=(), files=(), judgement=empty,
    )  # fmt: skip
    return bare, MemoryEvidence(record.plan)
