"""Stage 5's controls that separate head from engine: what the target does at k + 1 tokens a pass without a
drafter, and when it drafts for itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

from auditor.judge.activity import activity
from auditor.judge.forensics import LEAST_REPRODUCED
from auditor.judge.scene import Scene
from auditor.judge.shares import proportion
from auditor.model.completion import Completion, ForcedPath
from auditor.model.judgement import WidthControl
from auditor.stats.paired import mcnemar_lower

SelfDraft = Literal["other", "reference", "third", "earlier"]


class Controls:
    """The forced paths and self-drafted completions of one audit, ready to be asked about a divergence."""

    def __init__(self, scene: Scene) -> None:
        self._widths = {
            arm.name: arm.draft.tokens + 1
            for arm in scene.plan.candidates
            if arm.draft is not None and arm.draft.tokens
        }
        self._forced: dict[tuple[int, str], ForcedPath] = {}
        for path in scene.evidence.forced:
            before = self._forced.get((path.width, path.prompt))
            if before is None or path.error is None:
                self._forced[path.width, path.prompt] = path
        self._drafted = {
            answer.prompt: answer
            for phase in scene.phases("self-draft")
            # a target that did not draft for itself says nothing of drafting
            if phase.state == "done" and activity(phase, True).status == "ran"
            for answer in scene.evidence.answers(phase.id)
            if isinstance(answer, Completion)
        }

    def width_flip(self, arm: str, prompt: str, position: int, other: int) -> bool | None:
        """Whether the control says `other` at `position` of the reference's path. None: not measured, or the
        control replaces so many of the reference's tokens elsewhere that one more is no evidence."""
        width = self._widths.get(arm, 0)
        path = self._forced.get((width, prompt))
        if path is None or path.error is not None or position > path.tokens or not self._usable(width):
            return None
        return any(r.position == position and r.token == other for r in path.replaced)

    def _usable(self, width: int) -> bool:
        """Whether the control keeps enough of the reference's own tokens, by the rule of rescoring."""
        paths = [p for (w, _), p in self._forced.items() if w == width and p.error is None]
        tokens = sum(p.tokens for p in paths)
        return tokens - sum(len(p.replaced) for p in paths) >= LEAST_REPRODUCED * tokens

    def self_draft(
        self, prompt: str, position: int, reference: Sequence[int], other: int
    ) -> SelfDraft | None:
        """What the target, drafting for itself, says at `position`; None: not measured."""
        drafted = self._drafted.get(prompt)
        if drafted is None:
            return None
        at = position - 1
        if tuple(drafted.token_ids[:at]) != tuple(reference[:at]) or len(drafted.token_ids) <= at:
            return "earlier"
        said = drafted.token_ids[at]
        return "other" if said == other else "reference" if said == reference[at] else "third"

    def width_controls(
        self, answered: Mapping[str, tuple[Collection[str], Collection[str]]]
    ) -> Iterator[WidthControl]:
        """One a candidate whose width was forced. `answered`: per arm the prompts on which it agreed with the
        reference, and those on which it diverged."""
        for arm, width in self._widths.items():
            paths = {p: path for (w, p), path in self._forced.items() if w == width and path.sampled}
            agreed, differing = answered.get(arm, ((), ()))
            usable = [
                p for p, path in paths.items() if path.error is None and (p in agreed or p in differing)
            ]
            if not usable:
                continue
            mine = {p for p in usable if p in differing}
            theirs = {p for p in usable if paths[p].replaced}
            yield WidthControl(
                arm=arm,
                launch=paths[usable[-1]].launch,
                width=width,
                candidate=proportion(len(mine), len(usable)),
                control=proportion(len(theirs), len(usable)),
                candidate_only=len(mine - theirs),
                control_only=len(theirs - mine),
                p_more=mcnemar_lower(len(theirs - mine), len(mine - theirs)),
                tokens=sum(paths[p].tokens for p in usable),
                replaced=sum(len(paths[p].replaced) for p in usable),
                usable=self._usable(width),
                errors=sum(path.error is not None for path in paths.values()),
            )
