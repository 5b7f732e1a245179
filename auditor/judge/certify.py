"""Stage 3: does a launch repeat itself, and are two launches in one state?"""

from __future__ import annotations

import hashlib
import struct

from auditor.judge import settings
from auditor.judge.answers import Answers, Index, Key, agree
from auditor.judge.scene import Scene
from auditor.judge.shares import proportion
from auditor.model.judgement import (
    ChoiceDiff,
    FingerprintDiff,
    PairCertificate,
    PairState,
    Repeatability,
    SettingDiff,
)
from auditor.model.launch import Fingerprint, KernelChoice, Launch
from auditor.model.record import Evidence
from auditor.stats.sprt import Decision, SequentialOutcome, SequentialTest, decide

GRAPH_UNTOUCHED = ("mtp", "ngram", "ngram_gpu", "suffix", "draft_model")
"""Methods that leave the target's graph alone, so that fingerprints should be equal."""


def repeatability(launch: Launch, evidence: Evidence) -> Repeatability:
    """The certification prompts, pass 1 against pass 2 of one launch. n = 0 where either pass is missing.

    A prompt that one pass answered and the other did not (a failed request) is left out of n.
    """
    return repeatability_of(launch, Answers(evidence))


def repeatability_of(launch: Launch, answers: Answers) -> Repeatability:
    one, two = (answers.index(f"certify/{launch.id}/pass{k}") for k in (1, 2))
    keys = sorted(one.entries.keys() & two.entries.keys())
    disagreeing = tuple(k[0] for k in keys if not agree(one.entries[k], two.entries[k]))
    return Repeatability(
        launch=launch.id,
        agreement=proportion(len(keys) - len(disagreeing), len(keys)),
        disagreeing=disagreeing,
    )


def cache_path(launch: Launch, answers: Answers) -> bool:
    """True when the passes differ only on prompts that the prefix cache served differently."""
    one, two = (answers.index(f"certify/{launch.id}/pass{k}").entries for k in (1, 2))
    differing = [k for k in one.keys() & two.keys() if not agree(one[k], two[k])]
    return bool(differing) and all((one[k].cached or 0) != (two[k].cached or 0) for k in differing)


def certificate(reference: Launch, other: Launch, evidence: Evidence) -> PairCertificate:
    """Compares two launches: settings, fingerprints, sequential test on certification prompts, kernels."""
    return certificate_of(reference, other, Scene(evidence), Answers(evidence))


def certificate_of(
    reference: Launch,
    other: Launch,
    scene: Scene,
    answers: Answers,
    *,
    same_flags: bool | None = None,
) -> PairCertificate:
    """`certificate` over indexes that are there already. `same_flags` says whether both launches have one
    speculative configuration; None derives it from the role of `other`, as if `reference` were the plan's."""
    arm = next((a for a in scene.plan.arms if a.name == other.arm), None)
    one, two = (answers.index(f"certify/{x.id}/pass1") for x in (reference, other))
    order = seeded_order(one, two, scene.plan.seed)
    outcomes = [agree(one.entries[k], two.entries[k]) for k in order]
    test = sequential_test(scene)
    ran = decide(test, outcomes) if outcomes else None
    prints = scene.fingerprint(reference), scene.fingerprint(other)
    fingerprints = (
        "missing"
        if prints[0] is None or prints[1] is None
        else "equal"
        if prints[0].digest == prints[1].digest
        else "differ"
    )
    differing = (
        *settings.diff(reference, other),
        *_prefix_hits(reference, other, answers),
    )
    candidate = (arm is not None and arm.role == "candidate") if same_flags is None else not same_flags
    state, why = _state(candidate, fingerprints, ran, len(outcomes), differing)
    return PairCertificate(
        reference=reference.id,
        other=other.id,
        arm=other.arm,
        fingerprints=fingerprints,  # type: ignore[arg-type]
        fingerprint_diffs=fingerprint_diffs(prints[0], prints[1]) if prints[0] and prints[1] else (),
        sprt_outcomes="".join("1" if agreed else "0" for agreed in outcomes[: ran.n if ran else 0]),
        sprt_llr=ran.score if ran else 0.0,
        sprt_decision=_decision(ran),  # type: ignore[arg-type]
        agreement=proportion(sum(outcomes), len(outcomes)),
        settings=differing,
        choices=choice_diffs(reference, other),
        state=state,
        why=why,
    )


def sequential_test(scene: Scene) -> SequentialTest:
    plan = scene.plan.certification
    return SequentialTest(p0=plan.p0, p1=plan.p1, alpha=plan.alpha, beta=plan.beta, truncate=plan.prompts)


def seeded_order(one: Index, two: Index, seed: int) -> list[Key]:
    """Prompts that both launches answered, in an order that the plan's seed fixes.

    By a keyed hash, so that it depends neither on the order of asking nor on a generator's version.
    """
    both = one.entries.keys() & two.entries.keys()
    return sorted(both, key=lambda k: (hashlib.sha256(f"{seed}:{k[0]}:{k[1]}".encode()).digest(), k))


def _decision(ran: SequentialOutcome | None) -> str:
    if ran is None:
        return "NOT RUN"
    return Decision.INTERMEDIATE.value if ran.decision is Decision.CONTINUE else ran.decision.value


def _state(
    candidate: bool,
    fingerprints: str,
    ran: SequentialOutcome | None,
    n: int,
    differing: tuple[SettingDiff, ...],
) -> tuple[PairState, str]:
    blocking = [d for d in differing if d.kind == "not comparable"]
    if blocking:
        first = blocking[0]
        more = f" and {len(blocking) - 1} more" if len(blocking) > 1 else ""
        return "NOT COMPARABLE", (
            f"{first.name} is {first.reference} on the reference and {first.other} here{more}: "
            "that can change numerics by itself."
        )
    test = "" if ran is None else f"{ran.agreements} of {ran.n} certification prompts agreed"
    if candidate and fingerprints == "equal":
        return "SAME STATE", "The fingerprints are equal, which settles a candidate's state."
    if ran is None:
        return "UNVERIFIED", "No certification prompt was answered by both launches."
    decision = _decision(ran)
    if fingerprints == "differ" and not candidate:
        # The flags are the same, so the same state has the same bits: agreement alone is weaker evidence.
        why = f"The flags are the same but the fingerprints differ ({test})."
        return "OTHER STATE", why
    if decision == "SAME STATE":
        seen = {"equal": "the fingerprints are equal", "missing": "no fingerprint could be taken"}.get(
            fingerprints, "the fingerprints differ, as auxiliary outputs can make them"
        )
        return "SAME STATE", f"{test}, enough for the sequential test; {seen}."
    if decision == "OTHER STATE":
        why = f"{test}: the sequential test says another state (fingerprints: {fingerprints})."
        return "OTHER STATE", why
    return "INTERMEDIATE", (
        f"{test}: the sequential test ended between its bounds after {n} prompts (fingerprints: "
        f"{fingerprints})."
    )


def fingerprint_diffs(reference: Fingerprint, other: Fingerprint) -> tuple[FingerprintDiff, ...]:
    """Prompt by prompt, those with any differing bit."""
    theirs = {p.prompt: p for p in other.prompts}
    found = []
    for prompt in reference.prompts:
        match = theirs.get(prompt.prompt)
        if match is not None and match.bits == prompt.bits and match.token_ids == prompt.token_ids:
            continue
        one, two = decode_bits(prompt.bits), decode_bits(match.bits if match else "")
        comparable = match is not None and len(one) == len(two) and match.token_ids == prompt.token_ids
        steps = [abs(a - b) for a, b in zip(one, two, strict=False)] if comparable else []
        finite = bool(steps) and all(s < float("inf") for s in steps)
        found.append(
            FingerprintDiff(
                prompt=prompt.prompt,
                values=max(len(one), len(two)),
                differing=sum(
                    prompt.bits[i : i + 8] != (match.bits if match else "")[i : i + 8]
                    for i in range(0, 8 * max(len(one), len(two)), 8)
                ),
                max_abs=max(steps) if finite else None,
            )
        )
    return tuple(found)


def decode_bits(bits: str) -> tuple[float, ...]:
    """Float32 values from eight hex digits each, big-endian."""
    raw = bytes.fromhex(bits)
    return struct.unpack(f">{len(raw) // 4}f", raw)


def choice_diffs(reference: Launch, other: Launch) -> tuple[ChoiceDiff, ...]:
    """Kernels tuned differently, the closest race first.

    Only kernels that both launches named: a cache hit prints nothing, and a draft brings kernels of its own.
    """
    theirs = {(c.kernel, c.key, c.source): c for c in other.diary.choices}
    found = []
    for choice in reference.diary.choices:
        match = theirs.get((choice.kernel, choice.key, choice.source))
        if match is not None and match.chosen != choice.chosen:
            found.append(
                ChoiceDiff(
                    kernel=choice.kernel,
                    key=choice.key,
                    reference=choice.chosen,
                    other=match.chosen,
                    race_us=_race(choice, match.chosen),
                )
            )
    return tuple(sorted(found, key=lambda c: (_gap(c.race_us), c.kernel, c.key)))


def _race(choice: KernelChoice, winner_elsewhere: str) -> tuple[float, float] | None:
    times = {t.config: t.microseconds for t in choice.timings}
    one, two = times.get(choice.chosen), times.get(winner_elsewhere)
    return None if one is None or two is None else (one, two)


def _gap(race: tuple[float, float] | None) -> float:
    return float("inf") if race is None else abs(race[1] - race[0]) / max(min(race), 1e-9)


def _prefix_hits(reference: Launch, other: Launch, answers: Answers) -> tuple[SettingDiff, ...]:
    """Pass 2 repeats pass 1, so two caching servers hit alike; one that never hits runs other kernels."""
    totals = []
    for launch in (reference, other):
        entries = answers.index(f"certify/{launch.id}/pass2").entries.values()
        known = [e.cached for e in entries if e.cached is not None]
        totals.append(sum(known) if known else None)
    one, two = totals
    if one is None or two is None or one == two or (one and two):
        return ()
    return (
        SettingDiff(
            name="prefix cache hits in certification pass 2, tokens",
            reference=str(one),
            other=str(two),
            kind="not comparable",
        ),
    )
