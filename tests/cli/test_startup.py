"""Help and wrong usage are quick because they import little: counted in modules, never in seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

HEAVY = {
    "numpy", "scipy", "datasets", "pyarrow", "pandas", "httpx", "h11", "jinja2", "rich",
    "tokenizers", "psutil", "prometheus_client", "asyncio", "ssl", "multiprocessing",
}  # fmt: skip
PROBE = """
import json, os, sys, threading
try:
    {work}
except SystemExit as end:
    code = end.code
else:
    code = 0
modules = sorted({{name.split(".")[0] for name in sys.modules}})
children = open(f"/proc/self/task/{{os.getpid()}}/children").read().split()
print("PROBE" + json.dumps([code or 0, modules, threading.active_count(), children]))
"""


def probe(work: str) -> tuple[int, set[str], int, list[str]]:
    """(exit code, top-level modules loaded, threads, children) of a process that did `work`."""
    # Coverage of child processes would load what it needs itself.
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(work=work)], capture_output=True, text=True, check=True, env=env
    )
    code, modules, threads, children = json.loads(done.stdout.rpartition("PROBE")[2])
    return code, set(modules), threads, children


def call(*arguments: str) -> str:
    return f"from auditor.cli.main import main; main({list(arguments)!r})"


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [
        (("--help",), 0),
        (("--version",), 0),
        (("equivalence", "--help"), 0),
        (("demo", "--help"), 0),
        (("compare", "--help"), 0),
        (("--no-such-option",), 2),
        (("no-such-command",), 2),
        (("equivalence", "--no-such-option"), 2),
        (("verify",), 2),
        (("compare", "/nonexistent/a", "/nonexistent/b"), 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_help_and_wrong_usage_import_nothing_heavy(arguments: tuple[str, ...], exit_code: int) -> None:
    code, modules, threads, children = probe(call(*arguments))
    assert code == exit_code
    assert not modules & HEAVY
    assert (threads, children) == (1, [])


def test_importing_the_package_starts_nothing() -> None:
    work = (
        "import importlib, pkgutil, auditor; "
        "[importlib.import_module(m.name) for m in pkgutil.walk_packages(auditor.__path__, 'auditor.') "
        "if m.name not in ('auditor.__main__', 'auditor.demo.convert_smollm2')]"
    )
    code, modules, threads, children = probe(work)
    assert code == 0
    assert "auditor" in modules
    assert (threads, children) == (1, [])


def test_the_probe_sees_heavy_modules_threads_and_children() -> None:
    work = (
        "import numpy, subprocess; threading.Thread(target=threading.Event().wait, daemon=True).start(); "
        "subprocess.Popen(['sleep', '2'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)"
    )
    _, modules, threads, children = probe(work)
    assert "numpy" in modules & HEAVY
    assert threads == 2
    assert len(children) == 1
