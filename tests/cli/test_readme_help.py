"""The README shows the help of `audit` as it is."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from auditor.cli.main import cli

README = Path(__file__).parents[2] / "README.md"


def test_the_readme_shows_the_help() -> None:
    """Paste the output of `audit --help` between the markers of the README when this fails."""
    shown = re.search(
        r"<!-- audit --help -->\n```\n(.*?)```\n<!-- end -->", README.read_text("utf-8"), re.DOTALL
    )
    assert shown is not None
    help_text = CliRunner().invoke(cli, ["--help"], prog_name="audit", terminal_width=80).output
    assert shown[1] == help_text
