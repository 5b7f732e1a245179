"""audit equivalence"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from auditor.cli.running import conclude, output_options, run_folder
from auditor.plan.flags import click_options, resolve_options

if TYPE_CHECKING:
    from auditor.report.progress import Mode


@click.command()
@click_options()
@output_options
def equivalence(output: Path | None, as_json: bool, display: Mode, **options: object) -> int:
    """Audit a draft against its target: does speculation change what the target says?

    Launches a reference, a control with the same flags and one candidate for each draft; certifies their
    launch states; measures byte-exact agreement at batch 1, batch invariance under load and task accuracy
    with two one-sided tests; explains every divergence; and writes a run folder with report.html, audit.json
    and all raw completions.

    \b
    In a pipeline:
      audit equivalence --target model/ --draft head/
    The exit code decides: 0 PASS, 1 FAIL, 2 INVALID, 3 UNCERTIFIED, 4 INCONCLUSIVE, 5 ERROR.

    \b
    On a GPU host whose engine lives in another environment:
      audit equivalence --target model/ --draft head/ \\
        --engine-python /opt/vllm/bin/python --devices 0,1

    Every option can also be set in audit.toml and as AUDITOR_* variable; `audit plan` with the same options
    prints where each value comes from and what the audit can show.
    """
    from auditor.redact import redact_argv
    from auditor.run.audit import audit

    plan = resolve_options(options).plan
    folder = run_folder(plan, output)
    command = redact_argv(["audit", *sys.argv[1:]])
    return conclude(lambda progress: audit(plan, folder, command, progress), display, as_json)
