"""Typed remarks with their remedies: what a reader should know that no gate says."""

from __future__ import annotations

from collections.abc import Iterator

from auditor.judge import activity
from auditor.judge.accuracy import extractor_sensitive
from auditor.judge.certify import GRAPH_UNTOUCHED, cache_path
from auditor.judge.figures import Figures
from auditor.judge.shares import of
from auditor.model.judgement import Finding


def findings(figures: Figures) -> tuple[Finding, ...]:
    """All remarks of judging, in the order of the stages."""
    return (
        *_launches(figures),
        *activity.findings(figures.scene, figures.activity),
        *_reference(figures),
        *_load(figures),
        *_accuracy(figures),
    )


def _launches(figures: Figures) -> Iterator[Finding]:
    arms = {a.name: a for a in figures.scene.plan.arms}
    for certificate in figures.certificates:
        draft = arms[certificate.arm].draft
        if draft is not None and draft.method in GRAPH_UNTOUCHED and certificate.fingerprints == "differ":
            yield Finding(
                code="FINGERPRINT-UNEQUAL",
                severity="warning",
                subject=certificate.other,
                seen=f"the fingerprint differs from {certificate.reference}'s on "
                f"{len(certificate.fingerprint_diffs)} prompts",
                expected=f"equal bits, because {draft.method} leaves the target's graph alone",
                remedy="look at the kernels picked differently and relaunch with --pin snapshot",
            )
        for setting in certificate.settings:
            if " as read back from " in setting.name:
                yield Finding(
                    code="SWITCH-NOT-REACHED",
                    severity="error",
                    subject=certificate.other,
                    seen=f"{setting.name}: {setting.reference} against {setting.other}",
                    expected="the variable in the server process's own environment",
                    remedy="set it where the server is started, not where the client runs",
                )
    for repeated in figures.repeatability:
        launch = figures.scene.launch(repeated.launch)
        if launch is not None and repeated.disagreeing and cache_path(launch, figures.answers):
            yield Finding(
                code="CACHE-PATH",
                severity="warning",
                subject=repeated.launch,
                seen=f"{len(repeated.disagreeing)} prompts answered differently once cached, and only those",
                expected="the same answer from a cold and from a warm prefix cache",
                remedy="a difference of cache paths, not noise from run to run: pass "
                "--no-enable-prefix-caching "
                "to every arm, or warm all of them alike",
            )


def _reference(figures: Figures) -> Iterator[Finding]:
    stuck, total = stuck_reference(figures)
    if stuck:
        yield Finding(
            code="REFERENCE-DEGENERATE",
            severity="error" if 2 * stuck > total else "warning",
            subject="reference",
            seen=f"{stuck} of {total} reference completions are one token repeated throughout",
            expected="text",
            remedy="NaN logits look like this: check weights, dtype and kernels; agreement on such output "
            "says "
            "nothing",
        )


def stuck_reference(figures: Figures) -> tuple[int, int]:
    """(completions of the reference that are one token repeated, completions) at batch 1."""
    pairs = next(iter(figures.pairs.values()), [])
    return sum(p.stuck for p in pairs), sum(len(p.agreed) + len(p.differing) for p in pairs)


def _load(figures: Figures) -> Iterator[Finding]:
    for level in figures.invariance:
        subject = f"{level.arm} at {level.level}"
        if not level.held:
            got = "unknown" if level.achieved is None else str(level.achieved)
            share = "" if level.held_share is None else f", and held for {level.held_share:.0%} of it"
            fewer = level.achieved is None or level.achieved < level.level
            yield Finding(
                code="CONCURRENCY-NOT-REACHED",
                severity="warning",
                subject=subject,
                seen=f"{got} requests running at once (median of the steady phase) where {level.level} "
                f"were asked{share}",
                expected="the asked number for at least 90% of the steady phase",
                remedy=(f"read this level as {got}; " if fewer else "")
                + "give the level more prompts (--invariance-prompts), raise --max-num-seqs or the cache "
                "size, or ask for less",
            )
        if level.preemptions:
            yield Finding(
                code="PREEMPTED",
                severity="warning",
                subject=subject,
                seen=f"{level.preemptions} preemptions",
                expected="none",
                remedy="preempted requests are computed twice in other shapes: give the server more KV cache",
            )
    plain = [x for x in figures.invariance if x.reference is None and x.difference90 is None]
    varying = [x for x in plain if x.self_agreement.k < x.self_agreement.n]
    if varying:
        shown = "; ".join(f"{of(x.self_agreement)} at {x.level}" for x in varying)
        yield Finding(
            code="NOT-BATCH-INVARIANT",
            severity="note",
            subject=varying[0].arm,
            seen=f"the reference's completions under load equal its own batch-1 ones for {shown}",
            expected="nothing better of a stock engine",
            remedy="a head that varies no more than this is not at fault; what varies is the engine: "
            "where prompts share a prefix, try --disable-cascade-attn on every arm",
        )
    for replay in figures.replay:
        if replay.differing:
            yield Finding(
                code="CACHE-POISONED",
                severity="error",
                subject=replay.arm,
                seen=f"{len(replay.differing)} prompts are answered differently at batch 1 after the load "
                f"(first: {replay.differing[0]})",
                expected="the batch-1 completions from before the load",
                remedy="state written under load is read later: repeat with --no-enable-prefix-caching, "
                "and reset "
                "the prefix cache to see whether the fault goes away",
            )


def _accuracy(figures: Figures) -> Iterator[Finding]:
    for counts in figures.arm_accuracy:
        if extractor_sensitive(counts):
            yield Finding(
                code="EXTRACTOR-SENSITIVE",
                severity="warning",
                subject=counts.arm,
                seen=f"{counts.correct} correct by the strict rule, {counts.flexible_correct} by the "
                f"flexible one, "
                f"{counts.vllm_correct} by vLLM's, of {counts.planned}",
                expected="about the same by every rule",
                remedy="quote the rule with the figure; more worked examples make the model use the marker",
            )
