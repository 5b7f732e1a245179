"""Where the time went; what ran on what; how to do it again; what the evidence is, byte for byte."""

from __future__ import annotations

import shlex

from markupsafe import Markup

from auditor.model.base import EnvVar
from auditor.model.launch import Launch
from auditor.model.record import AuditRecord, Environment, FileDigest, Identity
from auditor.model.study import LaunchStudy
from auditor.report import numbers
from auditor.report.charts import timeline as chart
from auditor.report.parts import (
    Block,
    Cell,
    Code,
    Figure,
    Fold,
    Heading,
    Note,
    Pairs,
    Section,
    Table,
    Value,
    mono,
)
from auditor.report.sections.overview import STAGE_NAMES, end_of
from auditor.report.visible import block, plain

MOST_FILES = 60


def time(record: AuditRecord | LaunchStudy) -> Section:
    end = end_of(record)
    lanes = tuple(_lane(record, launch, end) for launch in record.launches)
    if not lanes:
        return Section("time", "Where the time went", "", (Note("No server was started.", "warn"),))
    rows: list[tuple[Value, ...]] = []
    for launch, lane in zip(record.launches, lanes, strict=True):
        phases = [p for p in record.phases if p.launch == launch.id]
        generating = sum(p.generating_s or 0.0 for p in phases)
        total = lane.end - lane.start
        ready = launch.ready_s if launch.ready_s is not None else total
        idle = max(0.0, total - ready - generating)
        rows.append(
            (
                mono(launch.id),
                numbers.seconds(ready),
                numbers.seconds(generating),
                numbers.seconds(idle),
                numbers.seconds(total),
                f"{len(phases)}",
            )
        )
    table = Table(
        f"Of {numbers.seconds(end)} in all. Idle: up, with no request in flight.",
        ("Launch", "Start-up", "Generating", "Idle", "Total", "Phases"),
        tuple(rows),
        frozenset({1, 2, 3, 4, 5}),
    )
    figure = Figure("One lane a launch, phases coloured by stage.", chart.lanes(lanes, end), table, wide=True)
    blocks: list[Block] = [figure]
    if record.notes:
        blocks.append(
            Table(
                "Other steps of the run.",
                ("Step", "About", "Took"),
                tuple((n.what, n.subject, numbers.seconds(n.ended_s - n.started_s)) for n in record.notes),
                frozenset({2}),
            )
        )
    return Section("time", "Where the time went", "", tuple(blocks))


def _lane(record: AuditRecord | LaunchStudy, launch: Launch, end: float) -> chart.Lane:
    stop = launch.ended_s if launch.ended_s is not None else end
    bars: list[chart.Bar] = []
    if launch.state != "attached":
        ready = launch.started_s + launch.ready_s if launch.ready_s is not None else stop
        kind = "start" if launch.ready_s is not None else "dead"
        label = f"{launch.id}: start-up {numbers.seconds(ready - launch.started_s)}"
        bars.append(chart.Bar(launch.started_s, ready, kind, label))
    for p in record.phases:
        if p.launch == launch.id:
            ended = p.ended_s if p.ended_s is not None else p.started_s
            label = f"{p.id}: {STAGE_NAMES[p.stage]}, {numbers.seconds(ended - p.started_s)}, {p.state}"
            bars.append(chart.Bar(p.started_s, ended, p.stage, label))
    return chart.Lane(launch.id, launch.started_s, max(stop, launch.started_s), tuple(bars))


def provenance(record: AuditRecord) -> Section:
    blocks: list[Block] = [
        Code("The command of this audit", block(shlex.join(record.command))),
        Heading("Host"),
        *host(record.environment),
        Heading("What was audited, byte for byte"),
        identities(record.identities),
    ]
    blocks += [
        Fold(f"Files of {i.name} ({len(i.files):,})", (files(i.files),)) for i in record.identities if i.files
    ]
    blocks.append(Heading("Commands of the servers"))
    blocks += [server(launch) for launch in record.launches if launch.argv]
    blocks.append(Heading("The evidence"))
    blocks.append(
        files(record.files) if record.files else Note("The record lists no evidence files.", "warn")
    )
    blocks.append(
        Note(
            "`audit verify` recomputes these digests and the verdict from the raw completions; "
            "`audit report` renders this page again from the record alone."
        )
    )
    return Section("provenance", "Environment, commands, digests", "", tuple(blocks))


def host(env: Environment) -> tuple[Block, ...]:
    """The machine and the packages."""
    return (
        Pairs(
            (
                ("Auditor", f"{env.auditor_version}{f', commit {env.git_commit}' if env.git_commit else ''}"),
                ("Python", env.python),
                ("Platform", env.platform),
                ("CPU", f"{env.cpu}, {env.cpu_count} cores, {numbers.number(env.memory_gib, 1)} GiB memory"),
                ("Accelerators", "; ".join(env.devices) or "none"),
            )
        ),
        Fold(f"{len(env.packages)} package versions", (_variables(env.packages, "Package", "Version"),)),
    )


def _variables(rows: tuple[EnvVar, ...], name: str, value: str) -> Table:
    return Table("", (name, value), tuple((mono(v.name), mono(v.value)) for v in rows))


def identities(rows: tuple[Identity, ...]) -> Table:
    return Table(
        "Digests are SHA-256 over the sorted digests of the files.",
        ("What", "Source", "Revision", "Licence", "Files", "Digest"),
        tuple(
            (
                mono(i.name),
                i.source,
                mono(i.revision or numbers.ABSENT),
                i.licence or numbers.ABSENT,
                numbers.integer(len(i.files)),
                mono(i.digest) if i.digest else Cell("not readable", "warn"),
            )
            for i in rows
        ),
        frozenset({4}),
    )


def files(rows: tuple[FileDigest, ...]) -> Table:
    rest = len(rows) - MOST_FILES
    return Table(
        "",
        ("File", "Size", "SHA-256"),
        tuple((mono(f.path), numbers.size(f.size), mono(f.sha256)) for f in rows[:MOST_FILES]),
        frozenset({1}),
        note=f"{rest:,} more are in audit.json." if rest > 0 else "",
    )


def server(launch: Launch) -> Fold:
    lines = [f"{v.name}={shlex.quote(v.value)}" for v in launch.env]
    text = " ".join((*lines, shlex.join(launch.argv)))
    blocks: list[Block] = [Code("Environment that the audit set, and the command", block(text))]
    if launch.environ_checked:
        same = launch.environ_checked == launch.env
        said = "equals what was set" if same else "differs from what was set"
        blocks.append(Note(f"Read back from the running process: {said}.", "" if same else "bad"))
        if not same:
            blocks.append(_variables(launch.environ_checked, "Variable, as read back", "Value"))
    if launch.resolved:
        blocks.append(
            Fold(
                f"{len(launch.resolved)} resolved settings",
                (
                    Table(
                        "",
                        ("Setting", "Value"),
                        tuple((mono(s.name), mono(s.value)) for s in launch.resolved),
                    ),
                ),
            )
        )
    if launch.diary.warnings:
        text_of = Markup("\n").join(block(plain(w)) for w in launch.diary.warnings)
        blocks.append(Code("Warnings while it started", text_of))
    version = f", {launch.engine_version}" if launch.engine_version else ""
    return Fold(f"{launch.id}{version}", tuple(blocks))
