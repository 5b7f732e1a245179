"""audit resume"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from auditor.cli.running import conclude

if TYPE_CHECKING:
    from auditor.report.progress import Mode


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print audit.json on standard output.")
@click.option(
    "--display",
    type=click.Choice(["auto", "bars", "plain", "none"]),
    default="auto",
    show_default=True,
    help="Progress on standard error.",
)
def resume(directory: Path, as_json: bool, display: Mode) -> int:
    """Go on with the interrupted or failed audit in DIRECTORY.

    Nothing that was measured is measured again. A launch that is needed again is restarted from its own
    caches and must show the same fingerprint first. Ends like the audit itself: same documents, same exit
    codes.
    """
    from auditor.redact import redact_argv
    from auditor.run.audit import resume as go_on

    command = redact_argv(["audit", *sys.argv[1:]])
    return conclude(lambda progress: go_on(directory, command, progress), display, as_json)
