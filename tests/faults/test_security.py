"""What a model, an engine, an environment or a plan may not do."""

from __future__ import annotations

import html.parser
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.cases.audits import Ran, arguments, attached, audit, cli, says
from tests.fakes.stub import serve

HOSTILE = "</script><img src=x onerror=alert(1)>\u202egnp.exe\x1b[2J\x1b]0;owned\x07\x00'\"&"
HF_TOKEN = "hf_" + "Qx7" * 12
API_KEY = "correct-horse-battery-staple"
ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
DEAD = "http://127.0.0.1:9"


class Tags(html.parser.HTMLParser):
    """Elements of a page with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Every text ends in markup and terminal escapes; engines print the secrets of their environment; proxies
    of the environment lead nowhere."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            patch.setenv(name, DEAD)
            patch.setenv(name.lower(), DEAD)
        patch.delenv("NO_PROXY", raising=False)
        patch.delenv("no_proxy", raising=False)
        patch.setenv("HF_TOKEN", HF_TOKEN)
        patch.setenv("SERVICE_API_KEY", API_KEY)
        leak = f"WARNING using {HF_TOKEN} and key {API_KEY} \x1b[31m{HOSTILE}"
        return audit(
            tmp_path_factory.mktemp("hostile"),
            {
                "all": {"text_suffix": HOSTILE, "log_lines": [leak]},
                "arms": {
                    "ngram": {"diverge": {"at": 3, "share": 0.7, "margin": 4.0}},
                    "dead": {"exit_at_boot": {"message": f"RuntimeError: {leak}"}},
                },
            },
            "--gates=agreement",
            "--trust-remote-code",
            "--json",
            drafts=("ngram", "dead=ngram"),
        )


def test_markup_in_completions_and_logs_is_text_in_the_report(ran: Ran) -> None:
    assert any(d.arm == "ngram" for d in ran.record.judgement.divergences), "their texts are shown"
    page = (ran.run_dir / "report.html").read_text("utf-8")
    assert "onerror=alert(1)" in page, "shown, not dropped"
    tags = Tags()
    tags.feed(page)
    for tag, attributes in tags.found:
        assert not [a for a in attributes if a.startswith("on")], (tag, attributes)
        assert not (tag in ("img", "iframe", "object", "embed", "base") and "svg" not in tag), tag
    assert not ACTING.search(page)
    says(page, "U+202E", "\\x1b")


def test_documents_for_machines_stay_well_formed(ran: Ran) -> None:
    ElementTree.parse(ran.run_dir / "junit.xml")
    json.loads((ran.run_dir / "audit.sarif").read_text("utf-8"))
    markdown = (ran.run_dir / "summary.md").read_text("utf-8")
    assert not re.search(r"(?<!\\)<img", markdown)
    assert not ACTING.search(markdown)


def test_no_escape_reaches_the_terminal(ran: Ran) -> None:
    assert "RuntimeError: WARNING using" in ran.err, "the engine's own words are told"
    assert not ACTING.search(ran.out)
    assert not ACTING.search(ran.err)
    assert json.loads(ran.out) == json.loads((ran.run_dir / "audit.json").read_text("utf-8"))


def test_no_secret_of_the_environment_in_record_log_or_report(ran: Ran) -> None:
    for path in [p for p in ran.run_dir.rglob("*") if p.is_file()]:
        content = path.read_bytes()
        for secret in (HF_TOKEN, API_KEY):
            assert secret.encode() not in content, f"{path.relative_to(ran.run_dir)} holds a secret"
    for secret in (HF_TOKEN, API_KEY):
        assert secret not in ran.out + ran.err
    log = (ran.run_dir / str(ran.launch("ngram-1").log)).read_text("utf-8")
    says(log, "using <redacted> and key <redacted>")


def test_proxies_of_the_environment_are_not_used(ran: Ran) -> None:
    assert all(p.state == "done" for p in ran.record.phases)
    assert ran.launch("ngram-1").state == "stopped"


def test_servers_listen_on_loopback_only(ran: Ran) -> None:
    for launch in ran.record.launches:
        assert launch.argv[launch.argv.index("--host") + 1] == "127.0.0.1"
        assert launch.base_url.startswith("http://127.0.0.1:")


def test_code_of_the_model_s_folder_runs_only_when_asked_for_and_is_shown(ran: Ran, tmp_path: Path) -> None:
    assert all("--trust-remote-code" in x.argv for x in ran.record.launches)
    says((ran.run_dir / "report.html").read_text("utf-8"), "custom code from the model folder ran")
    smuggled = cli(tmp_path / "run", *arguments(tmp_path, {}, "--engine-args=--trust-remote-code"))
    assert smuggled.code == 2
    says(smuggled.err, "--trust-remote-code is among the engine's flags", "use the auditor's own")


def test_the_key_of_attached_servers_is_used_and_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_API_KEY", API_KEY)
    key = ("--api-key", API_KEY)
    spec = ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}')
    with (
        serve(tmp_path, name="reference-0", args=key) as one,
        serve(tmp_path, name="control-0", args=key) as two,
        serve(tmp_path, name="candidate-0", args=(*key, *spec)) as three,
    ):
        urls = (one.base_url, two.base_url, three.base_url)
        ran = attached(tmp_path, *urls, "--gates=agreement", "--api-key-env=SERVICE_API_KEY")
    assert ran.code == 0, ran.out + ran.err
    for path in [p for p in ran.run_dir.rglob("*") if p.is_file()]:
        assert API_KEY.encode() not in path.read_bytes(), path
    page = (ran.run_dir / "report.html").read_text("utf-8")
    assert "custom code from the model folder ran" not in page


@pytest.mark.parametrize(
    "args",
    [
        ["--api-key-env=NOT_SET_ANYWHERE"],
        ["--engine-env=HF_TOKEN=" + HF_TOKEN],
        ["--engine-args=--api-key " + API_KEY],
        ["--reference-url=http://me:" + API_KEY + "@127.0.0.1:1"],
    ],
)
def test_a_secret_on_the_command_line_is_refused_and_not_repeated(tmp_path: Path, args: list[str]) -> None:
    extra = (
        ["--control-url=http://127.0.0.1:2", "--candidate-url=http://127.0.0.1:3"] if "url" in args[0] else []
    )
    if args[0].startswith("--api-key-env"):
        extra = [
            f"--{arm}-url=http://127.0.0.1:{port}"
            for port, arm in enumerate(("reference", "control", "candidate"), 1)
        ]
    base = [] if extra else arguments(tmp_path, {})[1:]
    ran = cli(tmp_path / "run", "equivalence", f"--output={tmp_path / 'run'}", *base, *extra, *args)
    assert ran.code == 2, ran.err
    assert API_KEY not in ran.err
    assert HF_TOKEN not in ran.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "args", [["--name=../../evil"], ["--name=/etc/evil"], ["--draft=..=ngram"], ["--draft=../../evil=ngram"]]
)
def test_names_in_a_plan_cannot_leave_the_output_folder(tmp_path: Path, args: list[str]) -> None:
    inner = tmp_path / "a" / "b"
    ran = cli(inner / "run", *arguments(inner, {}, *args))
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert {p.name for p in tmp_path.iterdir()} == {"a"}
    assert {p.name for p in (tmp_path / "a").iterdir()} == {"b"}


def test_an_edited_plan_cannot_lead_a_resumed_run_out_of_its_folder(ran: Ran, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    for name in ("plan.json", "prompts.jsonl"):
        (run_dir / name).write_bytes((ran.run_dir / name).read_bytes())
    plan = json.loads((run_dir / "plan.json").read_text())
    plan["arms"][2]["name"] = "../../evil"
    (run_dir / "plan.json").write_text(json.dumps(plan))
    again = cli(run_dir, "resume", str(run_dir))
    assert again.code == 2
    says(again.err, "../../evil", "restore plan.json")
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
