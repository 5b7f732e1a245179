"""Checked option values to an AuditPlan."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from auditor.errors import InvalidPlan
from auditor.model.base import EnvVar
from auditor.model.plan import (
    GATES,
    AccuracyPlan,
    AgreementPlan,
    Arm,
    AuditPlan,
    BaselinePlan,
    CertificationPlan,
    CorpusUse,
    Draft,
    EnginePlan,
    ForensicsPlan,
    InvariancePlan,
)
from auditor.plan.drafts import parse_draft
from auditor.plan.options import STAGES
from auditor.plan.values import existing_folder

Values = Mapping[str, Any]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_STAGES_OF_GATE = {
    "certification": (),
    "head-ran": (),
    "agreement": ("agreement", "forensics"),
    "invariance": ("agreement", "invariance"),
    "accuracy": ("accuracy",),
}
_STAGE_OF_GATE = {"agreement": "agreement", "invariance": "invariance", "accuracy": "accuracy"}


def build_plan(values: Values, given: frozenset[str]) -> tuple[AuditPlan, dict[str, Any]]:
    """The plan, and the values of options that were derived from others.

    `given` names the options that somebody set. Raises InvalidPlan for contradictions.
    """
    _check_together(values)
    gates, stages, derived = _gates_and_stages(values, given)
    arms = _arms(values)
    corpora = values["corpora"]
    target = _target(values)
    name = values["name"] or _default_name(target, arms)
    if values["name"] is None:
        derived["name"] = name
    _safe_name(name, "name of the audit")
    uses = _agreement_uses(values, corpora)
    accuracy = CorpusUse(
        name=values["accuracy.corpus"],
        path=corpora.get(values["accuracy.corpus"]),
        limit=values["accuracy.limit"],
        max_tokens=values["accuracy.max_tokens"],
    )
    _refuse_unused_corpora(corpora, {use.name for use in uses} | {accuracy.name})
    plan = AuditPlan(
        name=name,
        target=target,
        target_kind=values["target_kind"],
        arms=arms,
        engine=_engine(values),
        pin=values["pin"],
        seed=values["seed"],
        certification=CertificationPlan(**_section(values, "certification")),
        fingerprint_prompts=values["fingerprint_prompts"],
        agreement=AgreementPlan(corpora=uses, min_agreement=values["agreement.min_agreement"])
        if "agreement" in stages
        else None,
        forensics=ForensicsPlan(**_forensics_section(values)) if "forensics" in stages else None,
        invariance=InvariancePlan(**_section(values, "invariance")) if "invariance" in stages else None,
        accuracy=AccuracyPlan(**{**_accuracy_section(values), "corpus": accuracy})
        if "accuracy" in stages
        else None,
        gates=gates,
        min_acceptance_length=values["min_acceptance_length"],
        baseline=_baseline(values),
    )
    return plan, derived


def _baseline(values: Values) -> BaselinePlan | None:
    if not values["baseline"]:
        return None
    folder = existing_folder(values["baseline"]) or values["baseline"]
    return BaselinePlan(path=str(folder), max_acceptance_drop=values["baseline_max_acceptance_drop"])


def _section(values: Values, section: str) -> dict[str, Any]:
    start = section + "."
    return {name.removeprefix(start): value for name, value in values.items() if name.startswith(start)}


def _forensics_section(values: Values) -> dict[str, Any]:
    found = _section(values, "forensics")
    return {**found, "controls": tuple(name for name in found["controls"] if name != "none")}


def _accuracy_section(values: Values) -> dict[str, Any]:
    found = _section(values, "accuracy")
    return {key: value for key, value in found.items() if key not in ("corpus", "limit", "max_tokens")}


def _check_together(values: Values) -> None:
    ordered = (
        ("certification.p0", "certification.p1"),
        ("accuracy.floor", "accuracy.ceiling"),
    )
    for low, high in ordered:
        if values[low] >= values[high]:
            raise InvalidPlan(
                f"{low} is {values[low]:g} and {high} is {values[high]:g}",
                expected=f"{low} below {high}",
                todo="correct one of them",
            )
    _refuse_secrets(values)
    # A signal of a missing separator or of ids of other machines, not of a device.
    for device in values["engine.devices"]:
        if not re.fullmatch(r"[A-Za-z0-9:_/-]+(\+[A-Za-z0-9:_/-]+)*", device):
            raise InvalidPlan(
                f"engine.devices names {device!r}",
                expected="ids such as 0,1, or 0+1,2+3 for tensor-parallel groups",
                todo="correct it",
            )


def _refuse_secrets(values: Values) -> None:
    """The plan is recorded verbatim, so nothing secret may enter it; servers inherit the environment."""
    from auditor.redact import is_secret, scrub_text

    flags = [
        word.partition("=")[0]
        for name in ("engine.args", "candidate.args")
        for word in values[name]
        if word.startswith("-")
    ]
    for name in (*values["engine.env"], *flags):
        if is_secret(name):
            raise InvalidPlan(
                f"The plan would record the value of {name}",
                expected="no secret on the command line or in audit.toml",
                todo="export it as an environment variable: servers inherit it, and it is not recorded",
            )
    urls = (values["attach.reference_url"], values["attach.control_url"], *values["attach.candidate_url"])
    if any(url and scrub_text(url) != url for url in urls):
        raise InvalidPlan(
            "A server's URL holds a password",
            expected="a URL without one",
            todo="put the token into a variable and name that with --api-key-env",
        )


def _gates_and_stages(values: Values, given: frozenset[str]) -> tuple[Any, frozenset[str], dict[str, Any]]:
    """Gates and stages, each derived from the other where only one was given."""
    derived: dict[str, Any] = {}
    gates, stages = values["gates"], values["stages"]
    if not gates:
        raise InvalidPlan(
            "The plan has no gates",
            expected=f"some of {', '.join(GATES)}",
            todo="no checks is not a pass; name at least one gate",
        )
    if "stages" not in given:
        needed = set(itertools.chain.from_iterable(_STAGES_OF_GATE[gate] for gate in gates))
        stages = tuple(stage for stage in STAGES if stage in needed)
        derived["stages"] = stages
    elif "gates" not in given:
        gates = tuple(gate for gate in GATES if _STAGE_OF_GATE.get(gate, stages) in (stages, *stages))
        derived["gates"] = gates
    for gate in gates:
        if (stage := _STAGE_OF_GATE.get(gate)) and stage not in stages:
            raise InvalidPlan(
                f"The gate {gate} needs the stage {stage}, which the plan leaves out",
                expected="a stage for every gate",
                todo=f"add {stage} to --stages or drop the gate",
            )
    for stage in ("invariance", "forensics"):
        if stage in stages and "agreement" not in stages:
            raise InvalidPlan(
                f"The stage {stage} needs the stage agreement, whose completions it works on",
                expected="both",
                todo="add agreement to --stages",
            )
    return gates, frozenset(stages), derived


def _target(values: Values) -> str:
    target = values["target"]
    if values["attach.reference_url"]:
        return target or "as the servers report"
    if not target:
        raise InvalidPlan(
            "No target was given",
            expected="--target DIR, or --reference-url URL for running servers",
            todo="name the model that the draft speculates for",
        )
    if (folder := existing_folder(target)) is not None:
        return str(folder)
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", target) or target.count("/") != 1:
        raise InvalidPlan(
            f"There is no folder {target}", expected="a model folder, or a hub id such as OWNER/NAME"
        )
    return str(target)


def _arms(values: Values) -> tuple[Arm, ...]:
    drafts = [parse_draft(spec, values["num_speculative_tokens"]) for spec in values["draft"]]
    reference, control = values["attach.reference_url"], values["attach.control_url"]
    urls = values["attach.candidate_url"]
    attached = [
        name for name in ("reference_url", "control_url", "candidate_url") if values[f"attach.{name}"]
    ]
    if attached and len(attached) < 3:
        missing = {"reference_url", "control_url", "candidate_url"} - set(attached)
        raise InvalidPlan(
            f"Attach mode lacks {', '.join('--' + m.replace('_', '-') for m in sorted(missing))}",
            expected="a reference, a control and at least one candidate",
            todo="give all three kinds of URL, or none to let the audit launch servers",
        )
    if attached:
        candidates = _attached_candidates(urls, drafts)
    else:
        candidates = [
            Arm(
                name=draft.name,
                role="candidate",
                draft=draft,
                extra_args=values["candidate.args"],
                target=values["candidate.target"],
            )
            for draft in _unique_names(drafts)
        ]
    if not candidates:
        raise InvalidPlan(
            "No draft was given",
            expected="--draft DIR, mtp, ngram, suffix, …, or --candidate-url URL",
            todo="name what speculates",
        )
    for arm in candidates:
        _safe_name(arm.name, "name of an arm")
    return (
        Arm(name="reference", role="reference", url=_url(reference)),
        Arm(name="control", role="control", url=_url(control)),
        *candidates,
    )


def _attached_candidates(urls: tuple[str, ...], drafts: list[Draft]) -> list[Arm]:
    """Candidate servers with the drafts that were named for them, in order; unknown ones otherwise."""
    if len(drafts) > len(urls):
        raise InvalidPlan(
            f"{len(drafts)} drafts are named for {len(urls)} candidate servers",
            expected="at most one a server",
            todo="repeat --candidate-url",
        )
    found = []
    for number, spec in enumerate(urls):
        label, equals, url = spec.partition("=")
        if not equals or "/" in label:
            label, url = "", spec
        unknown = Draft(name="candidate", method="unknown")
        draft = drafts[number] if number < len(drafts) else unknown
        if label:
            draft = _renamed(draft, label)
        found.append((draft, url))
    named = _unique_names([draft for draft, _ in found])
    return [
        Arm(name=draft.name, role="candidate", draft=draft, url=_url(url))
        for draft, (_, url) in zip(named, found, strict=True)
    ]


def _unique_names(drafts: list[Draft]) -> list[Draft]:
    taken = {"reference", "control"}
    found = []
    for draft in drafts:
        names = (draft.name if n == 1 else f"{draft.name}-{n}" for n in itertools.count(1))
        name = next(n for n in names if n not in taken)
        taken.add(name)
        found.append(_renamed(draft, name))
    return found


def _renamed(draft: Draft, name: str) -> Draft:
    return Draft(name=name, method=draft.method, path=draft.path, speculative_config=draft.speculative_config)


def _url(url: str | None) -> str | None:
    if url is not None and not re.fullmatch(r"https?://[^\s/]+\S*", url):
        raise InvalidPlan(f"{url!r} is no URL", expected="http://HOST:PORT", todo="correct it")
    # users copy the /v1 of an OpenAI client's base address along
    return url.rstrip("/").removesuffix("/v1").rstrip("/") if url else None


def _engine(values: Values) -> EnginePlan:
    found = _section(values, "engine")
    found["env"] = tuple(EnvVar(name=name, value=value) for name, value in found["env"].items())
    return EnginePlan(**found)


def _agreement_uses(values: Values, corpora: Mapping[str, str]) -> tuple[CorpusUse, ...]:
    names, limits = values["agreement.corpora"], dict(values["agreement.limits"])
    if not names:
        raise InvalidPlan("agreement.corpora is empty", expected="at least one corpus", todo="name one")
    everyone = limits.pop("*", None)
    for name in limits:
        if name not in names:
            raise InvalidPlan(
                f"agreement.limits names {name}",
                expected=f"one of {', '.join(names)}",
                todo="correct --limit",
            )
    return tuple(
        CorpusUse(
            name=name,
            path=corpora.get(name),
            limit=_limit(limits.get(name, everyone), name),
            max_tokens=values["agreement.max_tokens"],
        )
        for name in names
    )


def _limit(raw: str | None, name: str) -> int | None:
    if raw is None:
        return None
    if not raw.isascii() or not raw.isdigit() or int(raw) < 1:
        raise InvalidPlan(
            f"The limit of {name} is {raw!r}", expected="a whole number from 1", todo="correct --limit"
        )
    return int(raw)


def _refuse_unused_corpora(corpora: Mapping[str, str], used: set[str]) -> None:
    for name in corpora:
        if name not in used:
            raise InvalidPlan(
                f"--corpus names {name}, which no stage uses",
                expected=f"one of {', '.join(sorted(used))}",
                todo=f"add {name} to --agreement-corpora or --accuracy-corpus, or drop it",
            )


def _default_name(target: str, arms: tuple[Arm, ...]) -> str:
    parts = [Path(target).name, *(arm.name for arm in arms if arm.role == "candidate")]
    text = re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(parts)).strip("-.")
    return text[:80] or "audit"


def _safe_name(name: str, what: str) -> None:
    """Names become folder names: nothing that could leave the output folder."""
    if not _NAME.fullmatch(name) or ".." in name:
        raise InvalidPlan(
            f"{name!r} cannot be the {what}",
            expected="at most 80 letters, digits, dots, dashes and underscores, a letter or digit first",
            todo="choose another name",
        )
