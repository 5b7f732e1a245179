"""A plan's preparation as a whole, for launched and for attached servers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from auditor.errors import EngineError, InvalidPlan
from auditor.plan.config import resolve
from auditor.plan.drafts import read_config
from auditor.plan.prepare import prepare, served_length
from tests.plan import support


def test_a_launched_plan(tmp_path: Path) -> None:
    target = support.target(tmp_path / "target")
    head = support.head(tmp_path / "head", max_position_embeddings=512)
    support.write_json(target / "generation_config.json", {"repetition_penalty": 1.1})
    built = prepare(support.plan(target, draft=(str(head), "ngram")))
    assert [i.name for i in built.identities] == [
        "target", "draft:eagle3", "corpus:certification", "corpus:sums", "tokenizer",
    ]  # fmt: skip
    assert all(i.digest for i in built.identities)
    assert "/" not in "".join(i.source for i in built.identities)
    codes = {finding.code for finding in built.findings}
    assert {"GENERATION-CONFIG-SAMPLING", "DRAFT-POSITIONS", "CORPUS-TOKENS-CLIPPED"} <= codes
    assert all(len(p.token_ids) + p.max_tokens <= 2048 for p in built.prompts)


def test_a_head_that_cannot_work_stops_the_plan(tmp_path: Path) -> None:
    target, head = support.target(tmp_path / "target"), support.head(tmp_path / "head", hidden_size=99)
    with pytest.raises(InvalidPlan, match="hidden states of 99"):
        prepare(support.plan(target, draft=(str(head),)))


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("", 2048),
        ("--max-model-len 512", 512),
        ("--max-model-len=1k", 1000),
        ("--max_model_len 1K", 1024),
        ("--max-model-len 100 --max-model-len 200", 200),
        ("--max-model-len auto", None),
    ],
)
def test_the_served_length(tmp_path: Path, args: str, expected: int | None) -> None:
    target = support.target(tmp_path / "target")
    plan = support.plan(target, **{"engine.args": args or None})
    assert served_length(plan, read_config(target, "the target")) == expected


class Server(BaseHTTPRequestHandler):
    def reply(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        self.reply({"data": [{"id": "served", "max_model_len": 1500}]} if self.path == "/v1/models" else [])

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = body["prompt"] if "prompt" in body else "<u>" + body["messages"][0]["content"]
        self.reply({"tokens": [99, *text.encode()]})

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


def attached(url: str, *paths: str) -> dict[str, object]:
    names = ("reference", "control", "candidate")
    urls: dict[str, object] = {
        f"attach.{name}_url": url + path for name, path in zip(names, paths, strict=True)
    }
    urls["attach.candidate_url"] = (urls["attach.candidate_url"],)
    corpora = {"agreement.corpora": "sums", "agreement.limits": ("5",), "accuracy.corpus": "sums"}
    small = {"accuracy.limit": "5", "certification.prompts": "10", "accuracy.shots": "2"}
    return urls | corpora | small


def test_an_attached_plan_asks_the_server(url: str) -> None:
    built = prepare(resolve(attached(url, "", "", ""), {}).plan)
    assert built.prompts[0].token_ids[0] == 99
    assert max(len(p.token_ids) + p.max_tokens for p in built.prompts) <= 1500
    identity = built.identities[0]
    assert (identity.name, identity.source, identity.digest) == ("target", "served", None)
    assert "ATTACHED-UNVERIFIED" in {f.code for f in built.findings}


@pytest.mark.parametrize(
    ("path", "expected"), [("/nothing", "answered 200"), (":1", "does not answer|answered")]
)
def test_attached_servers_that_are_none(url: str, path: str, expected: str) -> None:
    base = url if path.startswith("/") else "http://127.0.0.1:1"
    flags = attached(base, path if path.startswith("/") else "", "", "")
    with pytest.raises(EngineError, match=expected):
        prepare(resolve(flags, {}).plan)


def test_a_model_that_is_neither_folder_nor_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    plan = resolve({"target": "nobody/nothing", "draft": ("ngram",)}, {}).plan
    with pytest.raises(InvalidPlan, match=r"nobody/nothing is no folder and cannot be loaded"):
        prepare(plan)
