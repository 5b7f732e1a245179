"""audit diff"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from auditor.model.baseline import RunDiff


@click.command()
@click.argument("before", metavar="RUN_A", type=click.Path(path_type=Path))
@click.argument("after", metavar="RUN_B", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON on standard output.")
@click.option("--html", type=click.Path(path_type=Path), metavar="PATH", help="Also write a page.")
@click.option(
    "--max-acceptance-drop",
    type=click.FloatRange(0.0, 1.0),
    default=0.05,
    show_default=True,
    metavar="FRACTION",
    help="Relative drop of the acceptance length that is still no regression.",
)
def diff(before: Path, after: Path, as_json: bool, html: Path | None, max_acceptance_drop: float) -> int:
    """Compare two audits: RUN_A, for example the last release's, and RUN_B, this head's.

    Both are run folders. First what is not alike (weights, engine, plan, host), then agreement, divergence
    classes, acceptance length, accuracy, batch invariance and gates. Prompts that are the same in both runs
    are compared pairwise; where none are, the shares are compared unpaired, and that is said. Everything is
    computed from the raw files, whose digests are checked first.

    \b
    A regression of a candidate is
      agreement lower on the same prompts (one-sided exact McNemar p < 0.05);
      accuracy lower on the same problems (the same test), or not shown to be within RUN_B's margin;
      acceptance length down by more than --max-acceptance-drop on the same prompts;
      a structural, degenerate or unexplained class of divergences that RUN_A did not have;
      a gate that passed in RUN_A and fails in RUN_B.

    \b
    Exit codes
      0  no regression by these rules
      1  a regression
      2  a folder is no audit, or its files are not as recorded
      4  not comparable (another target, nothing in common), or too little evidence to say
    """
    import msgspec

    from auditor.judge.baseline import compare
    from auditor.record.baseline import read_snapshot

    found = compare(read_snapshot(before), read_snapshot(after), max_acceptance_drop)
    if html is not None:
        _write(html, found)
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(found), indent=1).decode() + "\n")
    else:
        from auditor.report.diff import summary

        click.echo(summary(found, str(html) if html else ""), nl=False)
    return found.exit_code


def _write(path: Path, found: RunDiff) -> None:
    from auditor.errors import StorageError
    from auditor.report.diff import render

    try:
        path.write_text(render(found), encoding="utf-8")
    except OSError as error:
        raise StorageError(
            f"{path} could not be written: {error.strerror}", todo="choose another place with --html"
        ) from error
