"""What forced paths and self-drafted completions say about a divergence."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from auditor.judge.controls import Controls
from auditor.judge.judge import judge
from auditor.judge.scene import Scene
from auditor.model.completion import ForcedPath, Replaced
from auditor.model.plan import Draft
from tests.fakes.evidence import EvidenceBuilder, answer_ids, differing, explain, honest_audit, plan


def path(
    prompt: str,
    *replaced: Replaced,
    width: int = 4,
    sampled: bool = True,
    tokens: int = 20,
    error: str | None = None,
) -> ForcedPath:
    return ForcedPath(
        launch="width-4-1",
        prompt=prompt,
        width=width,
        sampled=sampled,
        tokens=tokens,
        replaced=replaced,
        error=error,
    )


def audit(**fields: Any) -> EvidenceBuilder:
    """An honest audit whose head drafts three tokens a step."""
    draft = Draft(name="eagle3", method="eagle3", speculative_config='{"num_speculative_tokens":3}')
    arms = tuple(replace(arm, draft=draft if arm.draft else None) for arm in plan().arms)
    return honest_audit(plan_fields={"arms": arms}, **fields)


def controls(*paths: ForcedPath) -> Controls:
    build = audit()
    build.evidence.forced += paths
    return Controls(Scene(build.evidence))


OTHER = Replaced(position=5, token=77, margin=0.0)


@pytest.mark.parametrize(
    ("prompt", "position", "token", "said"),
    [
        ("code/0", 5, 77, True),
        ("code/0", 5, 78, False),
        ("code/0", 6, 77, False),
        ("code/0", 21, 77, None),
        ("code/1", 5, 77, None),
        ("code/2", 5, 77, None),
    ],
    ids=["the same token", "a third token", "elsewhere", "beyond the path", "not forced", "failed"],
)
def test_width_flip(prompt: str, position: int, token: int, said: bool | None) -> None:
    found = controls(path("code/0", OTHER), path("code/2", error="timeout: no reply", tokens=0))
    assert found.width_flip("eagle3", prompt, position, token) is said


def test_a_path_of_another_width_says_nothing() -> None:
    assert controls(path("code/0", OTHER, width=8)).width_flip("eagle3", "code/0", 5, 77) is None


def test_only_sampled_paths_are_compared() -> None:
    """A path that was forced because an arm diverged there would make the arm look worse than it is."""
    found = controls(
        path("code/0", OTHER),
        path("code/1"),
        path("code/2", sampled=False),
        path("code/3", error="timeout: no reply", tokens=0),
    )
    agreed = {"code/1", "code/3"}
    (control,) = found.width_controls({"eagle3": (agreed, {"code/0", "code/2"})})
    assert (control.candidate.k, control.control.k, control.candidate.n) == (1, 1, 2)
    assert (control.candidate_only, control.control_only, control.errors) == (0, 0, 1)
    assert (control.tokens, control.replaced) == (40, 1)
    assert control.p_more == 1.0


def test_a_later_path_replaces_one_that_failed_and_not_the_other_way_round() -> None:
    failed = path("code/0", error="connection: reset", tokens=0)
    for order in ((failed, path("code/0", OTHER)), (path("code/0", OTHER), failed)):
        assert controls(*order).width_flip("eagle3", "code/0", 5, 77) is True


def test_a_control_that_replaces_more_than_a_tenth_is_no_evidence() -> None:
    elsewhere = [Replaced(position=p, token=9, margin=0.0) for p in (2, 9)]
    assert controls(path("code/0", OTHER, *elsewhere)).width_flip("eagle3", "code/0", 5, 77) is None
    assert controls(path("code/0", OTHER, *elsewhere[:1])).width_flip("eagle3", "code/0", 5, 77) is True


@pytest.mark.parametrize(
    ("replaced", "status"),
    [((Replaced(position=5, token=777, margin=0.1),), "PASS"), ((), "FAIL")],
    ids=["the control says it as well", "the control keeps the reference's token"],
)
def test_an_unexplained_token_is_the_head_s_unless_the_control_says_it(
    replaced: tuple[Replaced, ...], status: str
) -> None:
    ids = answer_ids(21)
    build = audit(batch1={"code/1": differing(ids, 5)})
    explain(build, "code/1", 5, ids[4], 777, 4.1)
    build.evidence.forced.append(path("code/1", *replaced))
    gates = {gate.name: gate.status for gate in judge(build.evidence).gates}
    assert gates["agreement/eagle3"] == status


@pytest.mark.parametrize(
    ("drafts", "position", "said"),
    [((0, 0), 5, None), ((4, 8), 5, "other"), ((4, 8), 9, "earlier")],
    ids=["it never drafted", "the other token", "it left the path before"],
)
def test_self_draft_counts_only_where_it_drafted(
    drafts: tuple[int, int], position: int, said: str | None
) -> None:
    ids = answer_ids(1)
    build = audit()
    launch = build.launch("self-draft")
    replies = {"code/1": differing(ids, 5, 77)}
    build.phase("self-draft/self-draft-1", launch, replies, drafts=drafts, stage="self-draft", concurrency=1)
    assert Controls(Scene(build.evidence)).self_draft("code/1", position, ids, 77) == said
