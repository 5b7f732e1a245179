"""The page and the last lines of `audit launches`, from its document alone."""

from __future__ import annotations

import shlex
import textwrap
from dataclasses import dataclass
from pathlib import PurePath

from auditor.model.study import PLAIN, LaunchStudy
from auditor.report import numbers
from auditor.report.html import lay_out
from auditor.report.parts import Block, Code, Fold, Heading, Note, Section, Table, Tone, mono
from auditor.report.sections import launches as sections
from auditor.report.sections import provenance, tuning
from auditor.report.view import TARGET_LABELS
from auditor.report.visible import block, plain

WIDTH = 80
_MEANING = (
    "Launches in different states answer differently at temperature 0 although their flags are the same; "
    "a byte-exact comparison of two servers means something only inside one state."
)


@dataclass(frozen=True, slots=True)
class Page:
    title: str
    name: str
    tone: Tone
    headline: str
    reason: str
    meaning: str
    facts: tuple[str, ...]
    label: str
    incomplete: str
    sections: tuple[Section, ...]


def render(study: LaunchStudy) -> str:
    """HTML of the study: one self-contained file, the same bytes for the same document."""
    return lay_out("launches.html.j2", page(study))


def page(study: LaunchStudy) -> Page:
    head = headline(study)
    kind = study.plan.target_kind
    return Page(
        title=f"{head}: {study.plan.name}",
        name=study.plan.name,
        tone=_tone(study),
        headline=head,
        reason="; ".join(f"{a.arm}: {sections.counted(a)}" for a in study.result.arms) + ".",
        meaning=_MEANING,
        facts=_facts(study),
        label="" if kind == "trained" else TARGET_LABELS.get(kind, f"{kind} target"),
        incomplete=""
        if study.status == "complete"
        else f"This study is {study.status}: {study.error or 'no reason was recorded'}",
        sections=(
            sections.states(study),
            sections.matrix(study),
            tuning.kernels(study),
            sections.launches(study),
            sections.settings(study),
            tuning.diaries(study),
            _findings(study),
            provenance.time(study),
            _provenance(study),
        ),
    )


def headline(study: LaunchStudy) -> str:
    """`2 launch states in 6 launches`, of the plain target where drafts are other configurations."""
    plain_arms = [a for a in study.result.arms if a.configuration == PLAIN]
    states = sum(s.configuration == PLAIN for s in study.result.states)
    observed = sum(a.observed for a in plain_arms)
    if not observed:
        return "No launch was observed"
    lost = sum(a.without_state for a in plain_arms)
    if lost == observed:
        return f"No launch state: {numbers.counts(lost, observed)} launches do not repeat themselves"
    named = "1 launch state" if states == 1 else f"{states} launch states"
    of = " of the plain target" if len({a.configuration for a in study.result.arms}) > 1 else ""
    return f"{named} in {observed} {'launch' if observed == 1 else 'launches'}{of}"


def _tone(study: LaunchStudy) -> Tone:
    if study.status != "complete":
        return "bad"
    arms = study.result.arms
    return "good" if all(len(a.states) == 1 and not a.without_state for a in arms) else "warn"


def _facts(study: LaunchStudy) -> tuple[str, ...]:
    versions = sorted({x.engine_version for x in study.launches if x.engine_version})
    env = study.environment
    plan = study.plan
    return tuple(
        fact
        for fact in (
            f"target {PurePath(plan.target).name if PurePath(plan.target).is_absolute() else plan.target}",
            f"pin {plan.pin}",
            ", ".join(versions),
            env.devices[0] if env.devices else env.cpu,
            f"{plan.certification.prompts} certification prompts of {plan.certification.max_tokens} tokens",
            study.date,
        )
        if fact
    )


def _findings(study: LaunchStudy) -> Section:
    blocks: tuple[Block, ...] = (Note("Preflight and lints found nothing to remark."),)
    if study.findings:
        rows = tuple((mono(f.code), f.severity, f.subject, f.seen, f.remedy) for f in study.findings)
        blocks = (Table("", ("Code", "Severity", "About", "Seen", "Remedy"), rows),)
    return Section("findings", "Findings before the first launch", "", blocks)


def _provenance(study: LaunchStudy) -> Section:
    blocks: list[Block] = [
        Code("The command of this study", block(shlex.join(study.command))),
        Heading("Host"),
        *provenance.host(study.environment),
        Heading("What was launched, byte for byte"),
        provenance.identities(study.identities),
    ]
    blocks += [
        Fold(f"Files of {i.name} ({len(i.files):,})", (provenance.files(i.files),))
        for i in study.identities
        if i.files
    ]
    blocks.append(Heading("Commands of the servers"))
    blocks += [provenance.server(launch) for launch in study.launches if launch.argv]
    blocks += [Heading("The evidence"), provenance.files(study.files)]
    return Section("provenance", "Environment, commands, digests", "", tuple(blocks))


def summary(study: LaunchStudy, report: str = "") -> str:
    """The last lines of a run, at most 80 columns (a path is never broken); plain text."""
    lines = [headline(study)]
    if study.status != "complete":
        lines += _wrap(f"{study.status}: {study.error}", "  ")
    if study.plan.target_kind != "trained":
        lines += _wrap(f"target: {study.plan.target_kind}", "  ")
    for arm in study.result.arms:
        lines.append("")
        lines += _wrap(f"{arm.arm} ({arm.caches} caches), {arm.observed} of {arm.planned} observed", "")
        for s in arm.states:
            interval = numbers.interval_percent(s.share.clopper_pearson95)
            said = f"state {s.state}: {numbers.counts(s.share.k, s.share.n)}"
            lines += _wrap(f"{said}, 95% {interval}" if s.share.clopper_pearson95 else said, "  ")
        if arm.without_state:
            lines.append(f"  no state (does not repeat itself): {arm.without_state}")
        if arm.pairs:
            lines.append(f"  pairs in one state: {numbers.counts(arm.same_pairs, arm.pairs)}")
    lines += _agreement(study)
    lines += _kernels(study)
    if report:
        lines += ["", f"Report: {plain(report)}"]
    return "\n".join(lines) + "\n"


def _agreement(study: LaunchStudy) -> list[str]:
    lines: list[str] = []
    for s in study.result.states:
        if s.inside:
            lines += _wrap(f"inside {s.name}: {sections.spread(s.inside)}", "  ")
    for c in study.result.contrasts:
        said = f"{c.one} and {c.other}: {sections.spread(c.across)}, fingerprints {c.fingerprints}"
        lines += _wrap(said, "  ")
    return ["", "Completions equal", *lines] if lines else []


def _kernels(study: LaunchStudy) -> list[str]:
    telling = [k for k in study.result.kernels if k.tells != "none"]
    if not telling:
        return []
    lines = ["", "Tuned differently between states"]
    for k in telling[:5]:
        short = tuning.differing_fields([c for s in k.choices for c in s.chosen])
        chose = "; ".join(f"{s.state} {', '.join(short[c] for c in s.chosen)}" for s in k.choices)
        race = (
            f" ({' against '.join(numbers.number(t, 2) for t in k.race_us)} µs)"
            if k.race_us is not None
            else ""
        )
        lines += _wrap(f"{k.kernel}: {chose}{race}", "  ", "    ")
    if len(telling) > 5:
        lines.append(f"  and {len(telling) - 5} more in the report")
    return lines


def _wrap(text: str, first: str, rest: str | None = None) -> list[str]:
    return textwrap.wrap(
        plain(text),
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest if rest is not None else first + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
