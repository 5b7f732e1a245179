"""Stage 3: repeatability, settings, kernels, and the state of a pair."""

from __future__ import annotations

import pytest

from auditor.judge.certify import certificate, choice_diffs, decode_bits, fingerprint_diffs, repeatability
from auditor.judge.settings import diff, kind_of
from auditor.model.judgement import PairCertificate
from auditor.model.launch import Setting
from tests.fakes.evidence import (
    RESOLVED,
    EvidenceBuilder,
    answer_ids,
    differing,
    env,
    honest_audit,
    plan,
    tuned,
)


def pair(
    agreeing: int, *, n: int = 40, state: str = "A", arm: str = "eagle3", seed: int = 0
) -> PairCertificate:
    build = EvidenceBuilder(plan(seed=seed))
    ids = [p.id for p in build.prompts("certification", n)]
    one, two = build.launch("reference"), build.launch(arm)
    build.fingerprint(one, "A")
    if state != "none":
        build.fingerprint(two, state)
    for who, wrong in ((one, 0), (two, n - agreeing)):
        build.phase(
            f"certify/{who.id}/pass1",
            who,
            {p: differing(answer_ids(i), 3) if i < wrong else answer_ids(i) for i, p in enumerate(ids)},
        )
    return certificate(one, two, build.evidence)


@pytest.mark.parametrize(
    ("arm", "state", "agreeing", "expected"),
    [
        ("control", "A", 40, "SAME STATE"),
        ("control", "A", 0, "OTHER STATE"),  # equal fingerprints are necessary, not sufficient
        ("control", "B", 40, "OTHER STATE"),  # the same flags and the same state have the same bits
        ("control", "none", 40, "SAME STATE"),
        ("eagle3", "A", 27, "SAME STATE"),  # an equal fingerprint settles a candidate
        ("eagle3", "B", 38, "SAME STATE"),
        ("eagle3", "B", 0, "OTHER STATE"),
        ("eagle3", "B", 32, "INTERMEDIATE"),
        ("eagle3", "none", 40, "SAME STATE"),
    ],
)
def test_state(arm: str, state: str, agreeing: int, expected: str) -> None:
    found = pair(agreeing, state=state, arm=arm)
    assert found.state == expected, found.why
    assert found.agreement.k == agreeing


def test_the_sequential_test_stops_where_wald_says() -> None:
    same, other = pair(40, state="B"), pair(0, state="B")
    assert same.sprt_outcomes == "1" * 11
    assert same.sprt_llr == pytest.approx(11 * 0.641854, abs=1e-5)
    assert other.sprt_outcomes == "000"
    assert other.sprt_llr == pytest.approx(3 * -2.302585, abs=1e-5)
    assert (same.sprt_decision, other.sprt_decision) == ("SAME STATE", "OTHER STATE")


def test_the_order_is_seeded_and_does_not_follow_the_prompts() -> None:
    orders = {pair(30, state="B", seed=seed).sprt_outcomes for seed in range(5)}
    assert len(orders) > 1
    assert pair(30, state="B", seed=3) == pair(30, state="B", seed=3)


def test_nothing_answered_is_unverified() -> None:
    build = EvidenceBuilder(plan())
    one, two = build.launch("reference"), build.launch("control")
    found = certificate(one, two, build.evidence)
    assert (found.state, found.sprt_decision, found.agreement.n) == ("UNVERIFIED", "NOT RUN", 0)
    assert found.agreement.clopper_pearson95 is None


def test_fingerprint_difference_says_where_and_how_far() -> None:
    build = EvidenceBuilder(plan())
    one, two = build.launch("reference"), build.launch("control")
    diffs = fingerprint_diffs(build.fingerprint(one, "A"), build.fingerprint(two, "B"))
    assert [d.prompt for d in diffs] == [f"fingerprint/{i}" for i in range(8)]
    assert {(d.values, d.differing, d.max_abs) for d in diffs} == {(3, 3, 0.125)}
    assert decode_bits("3f80000040000000") == (1.0, 2.0)


def test_kernels_that_differ_come_with_the_race() -> None:
    build = EvidenceBuilder(plan())
    one = build.launch("reference", diary=tuned("H=2"))
    two = build.launch("control", diary=tuned("H=4"))
    (found,) = choice_diffs(one, two)
    assert (found.kernel, found.reference, found.other) == ("_chunk_cumsum_fwd_kernel", "H=2", "H=4")
    assert found.race_us == (5.5, 5.7)
    assert choice_diffs(one, one) == ()


def with_setting(name: str, value: str) -> tuple[Setting, ...]:
    kept = [s for s in RESOLVED if s.name != name]
    return tuple(sorted([*kept, Setting(name=name, value=value)], key=lambda s: s.name))


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("dtype", "torch.float32", "not comparable"),
        ("attention_backend", "TRITON_ATTN", "not comparable"),
        ("tensor_parallel_size", "2", "not comparable"),
        ("enable_prefix_caching", "True", "not comparable"),
        ("max_num_batched_tokens", "8192", "not comparable"),
        ("model", "other", "not comparable"),
    ],
)
def test_settings_that_change_numerics(name: str, value: str, kind: str) -> None:
    build = EvidenceBuilder(plan())
    one = build.launch("reference")
    two = build.launch("eagle3", resolved=with_setting(name, value))
    build.fingerprint(one), build.fingerprint(two)
    (found,) = diff(one, two)
    assert (found.name, found.kind) == (name, kind)
    made = certificate(one, two, build.evidence)
    assert made.state == "NOT COMPARABLE"
    assert name in made.why


@pytest.mark.parametrize(
    ("flags", "kind"),
    [((), "listed"), (("--block-size", "2128"), "not comparable"), (None, "not comparable")],
)
def test_a_block_size_that_nobody_asked_for_is_listed(flags: tuple[str, ...] | None, kind: str) -> None:
    """Seen on nemotron_h with an EAGLE-3 head: 2096 without speculation, 2128 with it. Attached servers show
    no command line, so that it stays open who chose."""
    build = EvidenceBuilder(plan())
    argv = () if flags is None else ("python", "-m", "server")
    one = build.launch("reference", argv=argv, resolved=with_setting("cache_config.block_size", "2096"))
    two = build.launch(
        "eagle3", argv=(*argv, *(flags or ())), resolved=with_setting("cache_config.block_size", "2128")
    )
    assert {d.kind for d in diff(one, two) if "block_size" in d.name} == {kind}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("speculative_config", "allowed"),
        ("served_model_name", "allowed"),
        ("model_config.served_model_name", "allowed"),
        ("port", "allowed"),
        ("compilation_config.local_cache_dir", "allowed"),
        ("num_gpu_blocks", "listed"),
        ("max_num_seqs", "listed"),
        ("async_scheduling", "not comparable"),
        ("cache_config.enable_prefix_caching", "not comparable"),
        ("model_config.dtype", "not comparable"),
        ("--tp-size", "not comparable"),
        ("cudagraph_capture_sizes", "listed"),
    ],
)
def test_kind_of_setting(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_spellings_of_one_value_are_no_difference() -> None:
    build = EvidenceBuilder(plan())
    one = build.launch("reference", resolved=with_setting("dtype", "torch.bfloat16"))
    two = build.launch("control", resolved=with_setting("dtype", "bfloat16"))
    assert diff(one, two) == ()


def test_compilation_is_compared_by_the_parts_that_choose_kernels() -> None:
    build = EvidenceBuilder(plan())
    configs = (
        '{"mode":3,"cudagraph_capture_sizes":[1,2],"local_cache_dir":"a"}',
        '{"mode":0,"cudagraph_capture_sizes":[1,4],"local_cache_dir":"b"}',
    )
    one, two = (
        build.launch(arm, resolved=(Setting(name="compilation_config", value=c),))
        for arm, c in zip(("reference", "eagle3"), configs, strict=True)
    )
    assert {d.name: d.kind for d in diff(one, two)} == {
        "compilation_config.mode": "not comparable",
        "compilation_config.cudagraph_capture_sizes": "listed",
        "compilation_config.local_cache_dir": "listed",
    }


def test_a_setting_that_one_server_did_not_report_is_listed_only() -> None:
    build = EvidenceBuilder(plan())
    one = build.launch("reference")
    two = build.launch("control", resolved=tuple(s for s in RESOLVED if s.name != "dtype"))
    assert {(d.name, d.kind) for d in diff(one, two)} == {("dtype", "listed")}


def test_unequal_kv_cache_is_a_note() -> None:
    build = EvidenceBuilder(plan())
    one = build.launch("reference", diary=tuned("H=2"))
    two = build.launch("control")
    assert {(d.name, d.kind) for d in diff(one, two)} == {("kv_blocks", "listed")}


def test_environment_differences() -> None:
    build = EvidenceBuilder(plan())
    one = build.launch(
        "reference", env=env(VLLM_CACHE_ROOT="a", VLLM_BATCH_INVARIANT="1", OMP_NUM_THREADS="1")
    )
    two = build.launch("control", env=env(VLLM_CACHE_ROOT="b", OMP_NUM_THREADS="2"))
    assert {(d.name, d.kind) for d in diff(one, two)} == {
        ("env VLLM_BATCH_INVARIANT", "not comparable"),
        ("env OMP_NUM_THREADS", "listed"),
    }


def test_repeatability_counts_prompts() -> None:
    build = honest_audit()
    reference = build.evidence.launches[0]
    assert repeatability(reference, build.evidence).agreement.k == 20
    build.phase(
        f"certify/{reference.id}/pass2",
        reference,
        {f"certification/{i}": answer_ids(i) if i else (9, 9) for i in range(20)},
    )
    found = repeatability(reference, build.evidence)
    assert (found.agreement.k, found.disagreeing) == (19, ("certification/0",))
