"""audit report"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

FORMATS = ("html", "markdown", "junit", "sarif", "model-card")


@click.command()
@click.argument("run", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    default="html",
    show_default=True,
    help="html: the whole report. markdown: a summary page. junit: one testcase a gate. sarif: findings for "
    "code scanning. model-card: the claim with its figures, conditions and the digest of the evidence.",
)
@click.option(
    "--output",
    metavar="PATH",
    help="File to write; - is standard output.  [default: DIR/report.html for html, else -]",
)
def report(run: Path, kind: str, output: str | None) -> int:
    """Render a record again, from the record alone.

    DIR is a run folder with audit.json and its raw files. The same record gives the same bytes. Nothing is
    judged again: `audit verify` does that.

    \b
    Exit codes: 0 the document was written, 2 the record cannot be read, 5 the document cannot be written.
    """
    from auditor.record.evidence import read_record

    record = read_record(run)
    if kind == "html":
        from auditor.record.evidence import StoredEvidence
        from auditor.report.html import render

        text = render(record, StoredEvidence.load(run))
    elif kind == "markdown":
        from auditor.report.markdown import summary

        text = summary(record)
    elif kind == "junit":
        from auditor.report.junit import junit

        text = junit(record)
    elif kind == "sarif":
        from auditor.report.sarif import sarif

        text = sarif(record)
    else:
        from auditor.report.markdown import model_card

        text = model_card(record)
    target = output if output is not None else str(run / "report.html") if kind == "html" else "-"
    if target == "-":
        sys.stdout.write(text)
    else:
        _write(Path(target), text)
        click.echo(f"Wrote {target}", err=True)
    return 0


def _write(path: Path, text: str) -> None:
    """By rename: a document that is there is whole."""
    from auditor.errors import StorageError

    partial = path.with_name(path.name + ".part")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        raise StorageError(
            f"{path} could not be written: {error.strerror}", todo="choose another place with --output"
        ) from error
