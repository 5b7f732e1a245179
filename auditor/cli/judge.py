"""audit judge"""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("run", metavar="DIR", type=click.Path(path_type=Path))
def judge(run: Path) -> int:
    """Judge the record in DIR again with this version's rules, without a server.

    Writes audit.json and the documents beside it anew; what was measured stays as it is. Exit codes are
    those of an audit.
    """
    from auditor.report.terminal import summary
    from auditor.run.outputs import write_outputs
    from auditor.run.rejudge import rejudge

    record = rejudge(run)
    click.echo(summary(record, str(write_outputs(record, run))))
    return record.judgement.verdict.exit_code
