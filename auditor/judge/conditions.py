"""What is not alike in two runs before any figure is compared: weights, engine, plan, host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from auditor.judge import settings
from auditor.model.baseline import ArmState, Condition, IdentityDigest, Snapshot
from auditor.model.launch import Setting

Pairs = Mapping[str, str]
"""Arm of the run after -> its counterpart in the run before."""
Bearing = Literal["blocks", "confounds", "subject", "listed"]
_ORDER: tuple[Bearing, ...] = ("blocks", "subject", "confounds", "listed")
_FOLDERS = frozenset({"model", "tokenizer", "model_tag", "download_dir"})
"""Where files lay, not what they were: identities say that."""
_PLAN_CONFOUNDS = (
    "engine.args",
    "engine.env",
    "engine.kind",
    "pin",
    "seed",
    "accuracy.concurrency",
    "accuracy.shots",
)
_HOST_CONFOUNDS = frozenset(
    {"devices", "cpu", "torch", "vllm", "triton", "transformers", "flashinfer-python"}
)


def conditions(before: Snapshot, after: Snapshot, pairs: Pairs) -> tuple[Condition, ...]:
    """Every difference, the ones that forbid a comparison first."""
    found = [
        *_runs(before, after),
        *_identities(before, after, pairs),
        *_launches(before, after, pairs),
        *_plan(before, after, pairs),
        *_host(before, after),
    ]
    return tuple(sorted(found, key=lambda c: _ORDER.index(c.bearing)))


def _runs(before: Snapshot, after: Snapshot) -> Iterator[Condition]:
    if before.target_kind != after.target_kind:
        yield _condition("kind of target", before.target_kind, after.target_kind, "blocks")
    for run in (before, after):
        # The run that is being judged right now has no end yet that could be wrong.
        if run.status not in ("complete", "running"):
            yield _condition("status of the audit", before.status, after.status, "confounds")
            break


def _identities(before: Snapshot, after: Snapshot, pairs: Pairs) -> Iterator[Condition]:
    ours = {i.name: i for i in before.identities}
    theirs = {_renamed(i.name, pairs): i for i in after.identities}
    for name in dict.fromkeys([*ours, *theirs]):
        one, two = ours.get(name), theirs.get(name)
        digests = {i.digest if i is not None else None for i in (one, two)}
        known = None not in digests
        if known and len(digests) == 1:
            continue
        bearing: Bearing = "listed"
        if name == "target":
            bearing = "blocks" if known else "confounds"
        elif name.startswith(("draft:", "target:")):
            bearing = "subject"
        elif name == "tokenizer":
            bearing = "confounds"
        yield _condition(name, _digest(one), _digest(two), bearing)


def _digest(identity: IdentityDigest | None) -> str | None:
    return None if identity is None else identity.digest or f"{identity.source}, not readable"


def _renamed(name: str, pairs: Pairs) -> str:
    """`draft:<arm after>` as the run before calls it."""
    kind, colon, arm = name.partition(":")
    return f"{kind}:{pairs[arm]}" if colon and kind in ("draft", "target") and arm in pairs else name


def _launches(before: Snapshot, after: Snapshot, pairs: Pairs) -> Iterator[Condition]:
    """Resolved settings of the launches that count, the reference's first; each difference once."""
    ours = {a.arm: a for a in before.arms}
    seen: set[str] = set()
    for arm in sorted(after.arms, key=lambda a: a.role != "reference"):
        other = ours.get(pairs.get(arm.arm, ""))
        if other is None or arm.role == "control":
            continue
        for condition in _settings(other, arm):
            name = condition.what.partition(": ")[2]
            if name not in seen:
                seen.add(name)
                yield condition


def _settings(before: ArmState, after: ArmState) -> Iterator[Condition]:
    for found in settings.diff(before.launch, after.launch):
        if found.kind != "allowed" and found.name not in _FOLDERS:
            bearing: Bearing = "confounds" if found.kind == "not comparable" else "listed"
            yield _condition(f"{after.arm}: {found.name}", found.reference, found.other, bearing)


def _plan(before: Snapshot, after: Snapshot, pairs: Pairs) -> Iterator[Condition]:
    ours = {s.name: s.value for s in before.plan}
    theirs = {_renamed_setting(s.name, pairs): s.value for s in after.plan}
    for name, one, two in _differing(ours, theirs):
        bearing: Bearing = "listed"
        if name.endswith(".speculative_config"):
            bearing = "subject"
        elif name.endswith((".extra_args", ".max_tokens")) or name.startswith(_PLAN_CONFOUNDS):
            bearing = "confounds"
        yield _condition(f"plan: {name}", one, two, bearing)


def _renamed_setting(name: str, pairs: Pairs) -> str:
    for arm, other in pairs.items():
        if name.startswith(f"arms.{arm}."):
            return f"arms.{other}.{name.removeprefix(f'arms.{arm}.')}"
    return name


def _host(before: Snapshot, after: Snapshot) -> Iterator[Condition]:
    if not before.host or not after.host:
        return
    for name, one, two in _differing(_values(before.host), _values(after.host)):
        yield _condition(f"host: {name}", one, two, "confounds" if name in _HOST_CONFOUNDS else "listed")


def _values(found: Sequence[Setting]) -> dict[str, str]:
    return {s.name: s.value for s in found}


def _differing(
    one: Mapping[str, str], two: Mapping[str, str]
) -> Iterator[tuple[str, str | None, str | None]]:
    for name in dict.fromkeys([*one, *two]):
        if one.get(name) != two.get(name):
            yield name, one.get(name), two.get(name)


def _condition(what: str, before: str | None, after: str | None, bearing: Bearing) -> Condition:
    return Condition(what=what, before=before, after=after, bearing=bearing)
