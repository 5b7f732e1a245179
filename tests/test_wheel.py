"""The wheel: what it holds, and that it works away from the checkout."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder / "site")
    return folder / "site"


def test_holds_templates_corpora_and_the_demo_but_no_tests(unpacked: Path) -> None:
    for name in (
        "auditor/_data/templates/report.html.j2",
        "auditor/_data/corpora/sums.jsonl",
        "auditor/_data/corpora/demo-sums/test.jsonl",
        "auditor/demo/target/model.safetensors",
        "auditor/demo/head/model.safetensors",
        "auditor/demo/mtp/model.safetensors",
        "auditor/plan/options.toml",
    ):
        assert (unpacked / name).is_file(), name
    assert not list(unpacked.glob("**/test_*.py"))
    assert not (unpacked / "reports").exists()


def test_resolves_a_plan_outside_the_checkout(unpacked: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.path.insert(0, sys.argv[1]); import auditor; "
            "assert auditor.__file__.startswith(sys.argv[1]); "
            "from auditor.cli.main import main; "
            "main(['plan', '--preset', 'demo', '--target', sys.argv[1] + '/auditor/demo/target', "
            "'--draft', 'ngram'])",
            str(unpacked),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "accuracy: n = 1319" in done.stdout
