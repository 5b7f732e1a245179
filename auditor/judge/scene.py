"""Who is who in the evidence: arms, the launch of each arm that counts, and its phases."""

from __future__ import annotations

from collections.abc import Iterable

from auditor.model.launch import Fingerprint, Launch
from auditor.model.phase import Phase, Stage
from auditor.model.plan import Arm
from auditor.model.record import Evidence

RAN = ("ready", "stopped", "died", "attached")
"""States of launches that served at least a canary."""


class Scene:
    """Lookups over one Evidence; nothing is judged here."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.plan = evidence.plan
        self._launches = {launch.id: launch for launch in evidence.launches}

    def arm_of_role(self, role: str) -> Arm | None:
        return next((arm for arm in self.plan.arms if arm.role == role), None)

    @property
    def reference(self) -> Arm | None:
        return self.arm_of_role("reference")

    @property
    def control(self) -> Arm | None:
        return self.arm_of_role("control")

    def launch(self, launch_id: str) -> Launch | None:
        return self._launches.get(launch_id)

    def attempts(self, arm: str) -> tuple[Launch, ...]:
        """Launches of an arm in order of start, failed ones too; restarts for rescoring are left out."""
        return tuple(x for x in self.evidence.launches if x.arm == arm and x.restart_of is None)

    def served(self, arm: str) -> tuple[Launch, ...]:
        """The attempts that came up."""
        return tuple(x for x in self.attempts(arm) if x.state in RAN)

    def family(self, launch: Launch) -> frozenset[str]:
        """Ids of a launch and of its restarts."""
        ids = {launch.id}
        for other in self.evidence.launches:
            if other.restart_of in ids:
                ids.add(other.id)
        return frozenset(ids)

    def fingerprint(self, launch: Launch) -> Fingerprint | None:
        """The first one taken of this very process."""
        return next((f for f in self.evidence.fingerprints if f.launch == launch.id), None)

    def phases(self, stage: Stage, launches: Iterable[str] | None = None) -> tuple[Phase, ...]:
        wanted = None if launches is None else set(launches)
        return tuple(
            p for p in self.evidence.phases if p.stage == stage and (wanted is None or p.launch in wanted)
        )

    def corpus_phases(self, stage: Stage, launch: Launch) -> dict[str, Phase]:
        """By corpus, the phase that counts: the last finished one, else the last."""
        found: dict[str, Phase] = {}
        for phase in self.phases(stage, self.family(launch)):
            if phase.corpus is None:
                continue
            before = found.get(phase.corpus)
            if before is None or phase.state == "done" or before.state != "done":
                found[phase.corpus] = phase
        return found
