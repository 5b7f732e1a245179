"""The command `audit`. A subcommand is imported when it is called: help and usage errors stay quick."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click

from auditor import __version__
from auditor.errors import AuditError

COMMANDS = {
    "equivalence": "Audit a draft: does it change what the target says? Exit code decides.",
    "demo": "The main job on a small target and draft that come with the tool (CPU, no hub).",
    "plan": "Print the resolved plan, where each value comes from, and what it can show.",
    "resume": "Go on with an interrupted audit.",
    "launches": "Launch the same flags several times and count the launch states.",
    "report": "Render a record again: HTML, Markdown, JUnit, SARIF, model card.",
    "judge": "Judge a record again with this version's rules.",
    "verify": "Check a record's digests and recompute its verdict.",
    "diff": "Compare two audits: what changed since the last release?",
    "compare": "Compare two files of completions, without a server.",
    "grade": "Grade a file of answers, without a server.",
    "stats": "The statistics by themselves.",
    "schema": "Print the JSON Schema of audit.json.",
}


class LazyGroup(click.Group):
    """A group whose commands live in modules of the same name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"auditor.cli.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="audit")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Decide whether a speculative-decoding draft may ship.

    \b
    Exit codes: 0 PASS, 1 FAIL, 2 INVALID (plan, command line or file is wrong),
    3 UNCERTIFIED, 4 INCONCLUSIVE, 5 ERROR (an engine died, the audit was interrupted).
    """
    ctx.obj = {"debug": debug}


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point. Expected failures print one sentence; the exit code is the error's own."""
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        code = cli.main(args=args, standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("audit: interrupted", err=True)
        sys.exit(5)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except AuditError as error:
        if "--debug" in args:
            raise
        click.echo(f"audit: {printable(str(error))}", err=True)
        sys.exit(error.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def printable(text: str) -> str:
    """`text` without control characters: engine output ends up in error sentences."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)
