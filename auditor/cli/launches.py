"""audit launches"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from auditor.cli.running import output_options, run_folder
from auditor.errors import InvalidPlan
from auditor.plan.flags import click_option, resolve_options
from auditor.plan.options import OPTIONS

if TYPE_CHECKING:
    from auditor.model.plan import AuditPlan
    from auditor.model.study import StudyPlan

F = TypeVar("F", bound=Callable[..., Any])
_USED = ("target", "draft", "num_speculative_tokens", "name", "target_kind", "seed", "fingerprint_prompts")
ARMS = ("cold", "warm")


def _plan_options(command: F) -> F:
    """Those options of an audit that a study of launches has."""
    for option in reversed(OPTIONS):
        kept = option.name in _USED or option.name.startswith(("engine.", "certification."))
        unused = option.name in ("engine.one_at_a_time", "engine.api_key_env", "certification.attempts")
        if kept and not unused:
            command = click_option(option)(command)
    return command


@click.command()
@click.option(
    "--count", type=click.IntRange(1, 200), default=6, show_default=True, help="Launches of each arm."
)
@click.option(
    "--arms",
    metavar="cold[,warm]",
    default="cold",
    show_default=True,
    help="Caches that servers start with. warm adds as many launches with a private copy of the caches of "
    "the first plain launch.",
)
@click.option(
    "--parallel",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Servers at once, placed on --devices in turn. Sensible with several devices. On one device they "
    "disturb each other's kernel tuning; they start one after the other, because memory that two servers "
    "profile at once can be found missing, unless --engine-args has --kv-cache-memory-bytes (with a "
    "--gpu-memory-utilization that lets all of them in).",
)
@click.option(
    "--concurrency",
    type=click.IntRange(2, 4096),
    help="Also ask the certification prompts with N requests in flight and compare with the launch's own "
    "batch-1 answers.  [default: off]",
)
@click.option(
    "--pin",
    type=click.Choice(["none", "force"]),
    default="none",
    show_default=True,
    help="force switches autotuning off for all launches. For copied caches use --arms cold,warm.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Plan in TOML.  [default: audit.toml where there is one]",
)
@_plan_options
@output_options
def launches(
    count: int,
    arms: str,
    parallel: int,
    concurrency: int | None,
    pin: str,
    output: Path | None,
    as_json: bool,
    display: str,
    **options: object,
) -> int:
    """Launch the same flags several times and count the launch states.

    A server's numerics are fixed when it starts: kernel tuning times candidates, and noise picks. Every
    launch is fingerprinted and answers the certification prompts twice at batch 1. The report says how
    many states came up and how often, what agrees inside and across them, and which kernels were
    tuned differently.

    \b
    Six cold launches on the default device, then as many with copied caches:
      audit launches --target model/ --count 6 --arms cold,warm

    With --draft, launches with speculation are further arms. Drafts of audit.toml are not: an audit's
    plan does not multiply a study by itself.

    \b
    Exit codes: 0 every launch was observed; 2 the command line is wrong;
    5 a launch failed or the study was interrupted (what was measured is kept).
    """
    from auditor.redact import redact_argv
    from auditor.report.launches import summary
    from auditor.report.progress import Progress
    from auditor.run.launches import LAUNCHES, launch_states, write_page

    plan, study = plan_study(options, count, _arms(arms), parallel, concurrency, pin)
    folder = run_folder(plan, output)
    command = redact_argv(["audit", *sys.argv[1:]])
    with Progress(mode=display) as progress:  # type: ignore[arg-type]
        outcome = launch_states(plan, study, folder, command, progress)
    page = write_page(outcome.document, outcome.run_dir)
    if as_json:
        sys.stdout.write((outcome.run_dir / LAUNCHES).read_text(encoding="utf-8"))
    click.echo(summary(outcome.document, str(page)), err=as_json)
    return 0 if outcome.document.status == "complete" else 5


def _arms(text: str) -> tuple[str, ...]:
    named = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not named or set(named) - set(ARMS):
        raise InvalidPlan(f"--arms is {text!r}", expected="cold or cold,warm", todo="correct it")
    return named


def plan_study(
    options: dict[str, object],
    count: int,
    arms: tuple[str, ...],
    parallel: int,
    concurrency: int | None,
    pin: str,
) -> tuple[AuditPlan, StudyPlan]:
    """The plan of the servers and that of the study. Raises InvalidPlan."""
    import re

    import msgspec

    from auditor.model.plan import Arm
    from auditor.model.study import PLAIN, StudyArm, StudyPlan

    named = options.get("draft") or ()
    # A plan of an audit must have a draft; one that nobody named is taken out again below.
    resolved = resolve_options({**options, "draft": named or ("ngram",), "gates": "certification"})
    plan = resolved.plan
    if plan.attached:
        raise InvalidPlan(
            "The plan attaches to running servers",
            expected="servers that the study launches itself",
            todo="remove the [attach] section of audit.toml",
        )
    study_arms: list[StudyArm] = []
    plan_arms: list[Arm] = []
    for draft in (None, *(plan.candidates if named else ())):
        configuration = draft.name if draft is not None else PLAIN
        for caches in arms:
            name = configuration if caches == "cold" else f"{configuration}-warm"
            study_arms.append(StudyArm(name=name, configuration=configuration, caches=caches))  # type: ignore[arg-type]
            role = "candidate" if draft is not None else "reference" if caches == "cold" else "control"
            plan_arms.append(
                Arm(name=name, role=role, draft=draft.draft if draft is not None else None)  # type: ignore[arg-type]
            )
    names = [arm.name for arm in plan_arms]
    if len(set(names)) < len(names):
        raise InvalidPlan(
            f"Two arms have one name: {', '.join(names)}",
            expected="other names for drafts than plain and …-warm",
            todo="name the draft with --draft NAME=DRAFT",
        )
    given = next(o.source for o in resolved.origins if o.option == "name") not in ("derived", "default")
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(plan.target).name).strip("-.")[:70] or "target"
    plan = msgspec.structs.replace(
        plan,
        name=plan.name if given else f"{stem}-launches",
        arms=tuple(plan_arms),
        engine=msgspec.structs.replace(plan.engine, one_at_a_time=parallel == 1),
        pin=pin,
        agreement=None,
        forensics=None,
        invariance=None,
        accuracy=None,
        gates=(),
    )
    return plan, StudyPlan(count=count, arms=tuple(study_arms), parallel=parallel, concurrency=concurrency)
