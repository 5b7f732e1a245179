"""What the commands that run an audit share: output folder, display, last lines, exit code."""

from __future__ import annotations

import datetime
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from auditor.model.plan import AuditPlan
    from auditor.report.progress import Mode, Progress
    from auditor.run.audit import Outcome

F = TypeVar("F", bound=Callable[..., Any])


def output_options(command: F) -> F:
    """--output, --json and --display."""
    for decorate in (
        click.option(
            "--display",
            type=click.Choice(["auto", "bars", "plain", "none"]),
            default="auto",
            show_default=True,
            help="Progress on standard error; auto is plain lines where that is no terminal.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print audit.json on standard output."),
        click.option(
            "--output",
            type=click.Path(path_type=Path),
            metavar="DIR",
            help="Run folder, new or empty.  [default: reports/<date>-<name>]",
        ),
    ):
        command = decorate(command)
    return command


def run_folder(plan: AuditPlan, output: Path | None) -> Path:
    """`output`, or a folder of the day under reports/ that does not exist yet."""
    if output is not None:
        return output
    day = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    stem = f"{day}-{re.sub(r'[^A-Za-z0-9._-]+', '-', plan.name).strip('-') or 'audit'}"
    folder, n = Path("reports") / stem, 1
    while folder.exists():
        n += 1
        folder = Path("reports") / f"{stem}-{n}"
    return folder


def conclude(run: Callable[[Progress], Outcome], display: Mode, as_json: bool) -> int:
    """Run, write the documents, print the last lines; the verdict's exit code."""
    from auditor.report.progress import Progress
    from auditor.report.terminal import summary
    from auditor.run.outputs import write_outputs

    with Progress(mode=display) as progress:
        outcome = run(progress)
    report = write_outputs(outcome.record, outcome.run_dir)
    if as_json:
        sys.stdout.write(inert((outcome.run_dir / "audit.json").read_text(encoding="utf-8")))
    click.echo(summary(outcome.record, str(report)), err=as_json)
    return outcome.record.judgement.verdict.exit_code


def inert(document: str) -> str:
    """The same JSON document with characters that could act on a terminal as their escapes."""

    def escaped(character: str) -> str:
        units = character.encode("utf-16-be")
        return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))

    return "".join(c if c.isprintable() or c == "\n" else escaped(c) for c in document)
