# ruff: noqa: E501
"""The judgement of the records in gold.py: see there."""

from __future__ import annotations

from collections.abc import Sequence

from scipy.stats import beta

from auditor.model.base import Interval
from auditor.model.judgement import (
    AccuracyTest,
    Activity,
    Agreement,
    ArmAccuracy,
    Calibration,
    ChoiceDiff,
    Divergence,
    Finding,
    FingerprintDiff,
    Gate,
    Hazard,
    Invariance,
    Judgement,
    NoiseFloor,
    PairCertificate,
    Proportion,
    Repeatability,
    Replay,
    SettingDiff,
    SurvivalPoint,
    TokenMargin,
    Verdict,
)
from auditor.model.phase import Phase

HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[31mred\x1b[0m \u202eevil\u202c\u200b\ttab\r\n"
CORPORA = ("gsm8k", "humaneval", "mt-bench")
SIZES = {"gsm8k": 200, "humaneval": 164, "mt-bench": 80}
USED = {"reference": "reference-1", "control": "control-3", "eagle3": "eagle3-1", "ngram": "ngram-1"}


def proportion(k: int, n: int) -> Proportion:
    if n == 0:
        return Proportion(k=0, n=0, clopper_pearson95=None, wilson95=None)
    low = 0.0 if k == 0 else float(beta.ppf(0.025, k, n - k + 1))
    high = 1.0 if k == n else float(beta.ppf(0.975, k + 1, n - k))
    z, p = 1.959963984540054, k / n
    mid, half = p + z * z / (2 * n), z * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5
    wilson = Interval(
        low=max(0.0, (mid - half) / (1 + z * z / n)), high=min(1.0, (mid + half) / (1 + z * z / n))
    )
    return Proportion(k=k, n=n, clopper_pearson95=Interval(low=low, high=high), wilson95=wilson)


def survival(points: Sequence[tuple[int, float]], n: int) -> tuple[SurvivalPoint, ...]:
    return tuple(
        SurvivalPoint(
            token=t, survival=s, low=max(0.0, s - 0.03), high=min(1.0, s + 0.02), at_risk=round(n * s)
        )
        for t, s in points
    )


def agreement() -> tuple[Agreement, ...]:
    agreeing = {
        "gsm8k": {"control": 200, "eagle3": 188, "ngram": 199},
        "humaneval": {"control": 163, "eagle3": 153, "ngram": 164},
        "mt-bench": {"control": 79, "eagle3": 66, "ngram": 78},
    }
    curve = {
        "control": ((310, 0.995),),
        "eagle3": ((3, 0.99), (41, 0.97), (160, 0.95), (700, 0.93)),
        "ngram": ((90, 0.99),),
    }
    out = []
    for corpus, arms in agreeing.items():
        n = SIZES[corpus]
        for arm, k in arms.items():
            control = None if arm == "control" else proportion(arms["control"], n)
            out.append(
                Agreement(
                    arm=arm,
                    corpus=corpus,
                    planned=n,
                    errors=0,
                    agreement=proportion(k, n),
                    control=control,
                    mcnemar_exact=None if control is None else 0.00195 if arm == "eagle3" else 1.0,
                    tango95=None if control is None else Interval(low=-0.1034, high=-0.0312),
                    zero_bound=3 / n if k == n else None,
                    hazard=(
                        Hazard(start=1, end=1, divergences=0, exposure=n, rate=0.0, interval95=Interval(low=0.0, high=3.69 / n)),
                        Hazard(start=2, end=16, divergences=n - k, exposure=15 * n, rate=(n - k) / (15 * n),
                               interval95=Interval(low=0.0001, high=0.01)),
                        Hazard(start=257, end=None, divergences=0, exposure=0, rate=None, interval95=None),
                    ),
                    survival=survival(curve[arm], n),
                )
            )  # fmt: skip
    return tuple(out)


def _margin(launch: str, reference: float, other: float, ranks: tuple[int, int], ok: bool) -> TokenMargin:
    return TokenMargin(
        launch=launch,
        reference_logprob=reference,
        other_logprob=other,
        margin=reference - other,
        reference_rank=ranks[0],
        other_rank=ranks[1],
        reproduces=ok,
    )


TEXTS = {
    "gsm8k/17": (
        "Janet sells 16 - 3 - 4 = <<16-3-4=9>>9 duck eggs a day.\nShe makes 9 * 2 = $<<9*2=18>>18 every day.\n#### 18",
        "Janet sells 16 - 3 - 4 = <<16-3-4=9>>9 duck eggs a day.\nThat is $<<9*2=18>>18 at the market.\n#### 18",
    ),
    "humaneval/3": (
        "    balance = 0\n    for op in operations:\n        balance += op\n        if balance < 0:\n            return True\n"
        "    return False\n",
        "    balance = 0\n    for op in operations:\n        balance += op\n        if balance < 0:\n            return True \n"
        "    return False\n",
    ),
    "mt-bench/8": ("It is " + HOSTILE, "It is  " + HOSTILE),
    "mt-bench/9": ("No no no no", "No no no no no no no no"),
    "gsm8k/41": ("The answer is 7.\n#### 7", "The answer is 7.\n#### 7"),
}


def divergences() -> tuple[Divergence, ...]:
    return (
        Divergence(
            arm="eagle3", corpus="gsm8k", prompt="gsm8k/17", position=24, reference_token=2100, other_token=1870,
            cls="near tie", why="margin 0.031 nats on the reference, within the noise floor of 0.25",
            reference_score=_margin("reference-1", -0.6912, -0.7225, (1, 2), True),
            other_score=_margin("eagle3-1", -0.7301, -0.6988, (2, 1), True),
            drafter_free_flip=True,
        ),
        Divergence(
            arm="eagle3", corpus="humaneval", prompt="humaneval/3", position=31, reference_token=198, other_token=216,
            cls="exact tie", why="both tokens have the same logprob on the reference",
            reference_score=_margin("reference-1", -0.8125, -0.8125, (1, 1), True),
            other_score=_margin("eagle3-1", -0.8125, -0.8125, (1, 1), True),
            drafter_free_flip=False,
        ),
        Divergence(
            arm="eagle3", corpus="mt-bench", prompt="mt-bench/8", position=3, reference_token=5, other_token=6,
            cls="unexplained", why="margin 2.31 nats on the reference, outside the noise floor of 0.25",
            notes=("the divergence repeats on replay", HOSTILE),
            reference_score=_margin("reference-1", -0.1021, -2.4121, (1, 3), True),
            other_score=_margin("eagle3-1", -1.9, -0.4, (2, 1), False),
        ),
        Divergence(
            arm="ngram", corpus="mt-bench", prompt="mt-bench/9", position=5, reference_token=None, other_token=77,
            cls="length overrun", why="8 tokens where max_tokens allows 4",
        ),
        Divergence(
            arm="control", corpus="gsm8k", prompt="gsm8k/41", position=6, reference_token=22, other_token=767,
            cls="unknown", why="rescoring is not calibrated at this length",
        ),
    )  # fmt: skip


def certificates() -> tuple[PairCertificate, ...]:
    return (
        PairCertificate(
            reference="reference-1", other="control-2", arm="control", fingerprints="differ",
            fingerprint_diffs=(FingerprintDiff(prompt="fingerprint/5", values=2048, differing=311, max_abs=0.0625),),
            sprt_outcomes="10000", sprt_llr=0.641854 - 4 * 2.302585, sprt_decision="OTHER STATE",
            agreement=proportion(9, 64),
            settings=(SettingDiff(name="num_gpu_blocks", reference="8192", other="8190", kind="listed"),),
            choices=(
                ChoiceDiff(kernel="_chunk_cumsum_fwd_kernel", key="(64, 256)", reference="H=2", other="H=4",
                           race_us=(5.503, 5.712)),
                ChoiceDiff(kernel="triton_red_fused_1", key="xnumel=8192", reference="XBLOCK=8", other=None, race_us=None),
            ),
            state="OTHER STATE", why="the sequential test stopped after 5 prompts, 4 of them disagreed",
        ),
        PairCertificate(
            reference="reference-1", other="control-3", arm="control", fingerprints="equal", fingerprint_diffs=(),
            sprt_outcomes="1" * 11, sprt_llr=11 * 0.641854, sprt_decision="SAME STATE", agreement=proportion(64, 64),
            settings=(), choices=(), state="SAME STATE", why="equal fingerprints, and 11 of 11 agreed",
        ),
        PairCertificate(
            reference="reference-1", other="eagle3-1", arm="eagle3", fingerprints="differ",
            fingerprint_diffs=(FingerprintDiff(prompt="fingerprint/7", values=3500, differing=12, max_abs=0.0039),),
            sprt_outcomes="11111110111111111111", sprt_llr=19 * 0.641854 - 2.302585, sprt_decision="SAME STATE",
            agreement=proportion(61, 64),
            settings=(SettingDiff(name="speculative_config", reference=None, other='{"method": "eagle3"}', kind="allowed"),),
            choices=(), state="SAME STATE", why="fingerprints differ, as auxiliary outputs make them; the sequential test decides",
        ),
        PairCertificate(
            reference="reference-1", other="ngram-1", arm="ngram", fingerprints="equal", fingerprint_diffs=(),
            sprt_outcomes="", sprt_llr=0.0, sprt_decision="NOT RUN", agreement=proportion(62, 64),
            settings=(), choices=(), state="SAME STATE", why="equal fingerprints settle it",
        ),
    )  # fmt: skip


def invariance() -> tuple[Invariance, ...]:
    shares = {
        "reference": (60, 54, 47),
        "control": (60, 55, 47),
        "eagle3": (58, 50, 44),
        "ngram": (61, 54, 48),
    }
    out = []
    for arm, ks in shares.items():
        for level, k, base in zip((2, 8, 32), ks, shares["reference"], strict=True):
            held = not (arm == "eagle3" and level == 32)
            out.append(
                Invariance(
                    arm=arm, level=level, achieved=level if held else 24, held=held, self_agreement=proportion(k, 64),
                    distinct_mean=1.0 + (64 - k) / 64, run_to_run=proportion(30, 32), preemptions=0,
                    acceptance_length=None if arm in ("reference", "control") else 2.41,
                    reference=proportion(base, 64),
                    difference90=None if arm == "reference" else Interval(low=-0.0934, high=0.0312), errors=0,
                )
            )  # fmt: skip
    return tuple(out)


def accuracy() -> tuple[AccuracyTest, ...]:
    def test(
        arm: str, counts: tuple[int, int, int, int], verdict: str, why: str, **f: object
    ) -> AccuracyTest:
        a, b, c, d = counts
        values: dict[str, object] = {
            "missing": 0, "n": a + b + c + d, "margin": 0.05, "alpha": 0.05,
            "estimate": (b - c) / (a + b + c + d), "power_at_margin": 0.9999991,
            "by_margin": ((0.02, verdict), (0.03, verdict), (0.05, verdict)),
        }  # fmt: skip
        values.update(f)
        return AccuracyTest(arm=arm, both=a, candidate_only=b, reference_only=c, neither=d, verdict=verdict, why=why,
                            **values)  # type: ignore[arg-type]  # fmt: skip

    shown = "the score test and the exact test reject a difference of 0.05 in either direction"
    return (
        test(
            "control", (820, 9, 7, 483), "equivalent", shown,
            score_p_lower=5.03e-16, score_p_upper=9.66e-15, score_p=9.66e-15,
            exact_p_lower=5.23e-16, exact_p_upper=9.75e-15, exact_p=9.75e-15,
            ci90=Interval(low=-0.0037572, high=0.0070002), ci95=Interval(low=-0.0049377, high=0.0082512),
            newcombe90=Interval(low=-0.0036448, high=0.0066803), mcnemar_exact=0.8036, mcnemar_mid_p=0.6291,
            wald_se=0.0188236, wald_p=0.005002, farrington_manning_p=0.004966,
            smallest_margin=0.0070002, floor_margin=0.0053824,
        ),
        test(
            "eagle3", (801, 31, 26, 461), "equivalent", shown,
            score_p_lower=3.68e-13, score_p_upper=1.47e-10, score_p=1.47e-10,
            exact_p_lower=3.85e-13, exact_p_upper=1.67e-10, exact_p=1.67e-10,
            ci90=Interval(low=-0.0057485, high=0.0134786), ci95=Interval(low=-0.0076594, high=0.0154474),
            newcombe90=Interval(low=-0.0057091, high=0.0132921), mcnemar_exact=0.5966, mcnemar_mid_p=0.5118,
            wald_se=0.0188117, wald_p=0.007017, farrington_manning_p=0.00697,
            smallest_margin=0.0134786, floor_margin=0.0096161,
        ),
        test(
            "ngram", (722, 24, 105, 468), "not equivalent",
            "equivalence within ±0.05 was not shown, although this n could have shown 0.0143",
            score_p_lower=0.916982, score_p_upper=3.9e-29, score_p=0.916982,
            exact_p_lower=0.918664, exact_p_upper=2.94e-29, exact_p=0.918664,
            ci90=Interval(low=-0.0758509, high=-0.0479069), ci95=Interval(low=-0.0787611, high=-0.0453790),
            newcombe90=Interval(low=-0.0753198, high=-0.0474494), mcnemar_exact=2.8e-13, mcnemar_mid_p=1.7e-13,
            wald_se=0.019068, wald_p=0.725211, farrington_manning_p=0.725088,
            smallest_margin=0.0758509, floor_margin=0.0142822,
        ),
    )  # fmt: skip


def activity(all_phases: Sequence[Phase]) -> tuple[Activity, ...]:
    out = []
    for p in all_phases:
        speculative = p.arm in ("eagle3", "ngram")
        rates = (0.81, 0.62, 0.44, 0.29) if p.arm == "eagle3" else (0.55, 0.41, 0.37)
        speed = {"reference": 61.0, "control": 60.7, "eagle3": 104.2, "ngram": 77.9}[p.arm]
        out.append(
            Activity(
                arm=p.arm, launch=p.launch, phase=p.id,
                drafts=p.planned * 40 if speculative else None,
                draft_tokens=p.planned * 40 * len(rates) if speculative else None,
                accepted=round(p.planned * 40 * sum(rates)) if speculative else None,
                per_position=rates if speculative else None,
                acceptance_length=1 + sum(rates) if speculative else None,
                tokens_per_s=speed * (1 if p.concurrency == 1 else p.concurrency**0.7),
                status="ran" if speculative else "not speculative",
            )
        )  # fmt: skip
    return tuple(out)


def judgement(all_phases: Sequence[Phase]) -> Judgement:
    return Judgement(
        repeatability=tuple(
            Repeatability(launch=x, agreement=proportion(64, 64), disagreeing=()) for x in USED.values()
        ),
        certificates=certificates(),
        activity=activity(all_phases),
        agreement=agreement(),
        divergences=divergences(),
        noise_floor=NoiseFloor(
            reference_control_max=0.0312, reference_control_n=512, decode_rescore_max=0.0625, decode_rescore_n=384,
            ulp=0.25, dtype="bfloat16", floor=0.25,
        ),
        calibration=(
            Calibration(bin_start=1, bin_end=256, reproduced=383, n=384, usable=True),
            Calibration(bin_start=257, bin_end=None, reproduced=3, n=12, usable=False),
        ),
        invariance=invariance(),
        replay=(
            Replay(arm="reference", agreement=proportion(32, 32), differing=()),
            Replay(arm="eagle3", agreement=proportion(31, 32), differing=("mt-bench/8",)),
        ),
        arm_accuracy=tuple(
            ArmAccuracy(
                arm=arm, correct=k, wrong=1319 - k - 12 - 3, no_answer=12, truncated=3, errors=0, planned=1319,
                flexible_correct=k + 21, vllm_correct=k + 17,
            )
            for arm, k in (("reference", 827), ("control", 829), ("eagle3", 832), ("ngram", 746))
        ),
        accuracy=accuracy(),
        findings=(
            Finding(
                code="ACCURACY-BEYOND-MARGIN", severity="error", subject="ngram",
                seen="105 problems solved by the reference only, 24 by ngram only",
                expected="a 90% interval within ±5 pp", remedy="read the reference-only problems in the record; do not ship",
            ),
            Finding(
                code="EXTRACTOR-SENSITIVE", severity="note", subject="gsm8k",
                seen="21 answers count only by the flexible rule", expected="the rules to agree",
                remedy="nothing: the strict rule decides, the others are printed beside it",
            ),
        ),
        gates=(
            Gate(name="certification", status="PASS", figure="64 of 64, fingerprints equal (third launch)",
                 bound="SAME STATE", remedy=""),
            Gate(name="head-ran/eagle3", status="PASS", figure="12 of 12 phases drafted, acceptance length 3.16",
                 bound="above 1.05", remedy=""),
            Gate(name="agreement/eagle3", status="FAIL", figure="1 unexplained of 37 divergences, 407 of 444 agree",
                 bound="0 unexplained, structural or degenerate",
                 remedy="open mt-bench/8 below: at token 3 the reference prefers its token by 2.31 nats"),
            Gate(name="agreement/ngram", status="FAIL", figure="1 length overrun of 3 divergences",
                 bound="0 unexplained, structural or degenerate", remedy="report it to the engine: max_tokens is not kept"),
            Gate(name="invariance/eagle3", status="INCONCLUSIVE", figure="level 32 reached 24 in flight",
                 bound="levels held for 90% of the steady phase", remedy="raise --max-num-seqs to at least 32"),
            Gate(name="accuracy/ngram", status="FAIL", figure="−81 of 1,319, 90% interval [−7.59, −4.79] pp",
                 bound="within ±5 pp", remedy="do not ship on this evidence"),
        ),
        verdict=Verdict(
            name="FAIL", exit_code=1,
            reason="agreement/eagle3: 1 divergence is unexplained (mt-bench/8 at token 3, 2.31 nats outside the noise floor).",
            limits=(
                "One launch an arm: nothing is claimed of other launches of the same configuration.",
                "Greedy decoding only.",
            ),
        ),
    )  # fmt: skip
