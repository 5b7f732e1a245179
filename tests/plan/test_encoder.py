"""Text to ids as the engine would do it: one BOS, no date, the template in a sandbox."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from auditor.errors import EngineError, InvalidPlan
from auditor.plan.encoder import LocalEncoder, RemoteEncoder
from auditor.plan.template import FROZEN, ChatTemplate
from tests.plan import support


def test_a_completion_gets_the_bos_of_the_post_processor(tmp_path: Path) -> None:
    encoder = LocalEncoder(support.target(tmp_path / "m"))
    ids = encoder.encode("ab", chat=False)
    assert ids[0] == encoder.bos_id == 1
    assert len(ids) == 3
    assert encoder.special_ids == {0, 1, 2}
    assert encoder.vocab_size == 259
    without = LocalEncoder(support.target(tmp_path / "n", bos=False))
    assert without.encode("ab", chat=False) == ids[1:]


def test_add_bos_token_is_honoured_where_the_tokenizer_file_lacks_it(tmp_path: Path) -> None:
    folder = support.target(tmp_path / "m", bos=False)
    support.write_json(folder / "tokenizer_config.json", {"bos_token": "<s>", "add_bos_token": True})
    assert LocalEncoder(folder).encode("ab", chat=False)[0] == 1


def test_a_chat_has_one_bos_though_template_and_tokenizer_both_add_one(tmp_path: Path) -> None:
    encoder = LocalEncoder(support.target(tmp_path / "m"))
    ids = encoder.encode("hi", chat=True)
    assert ids.count(1) == 1
    assert ids == (1, *LocalEncoder(support.target(tmp_path / "n", bos=False)).encode(
        "<user>hi<assistant>", chat=False))  # fmt: skip


def test_many_are_each(tmp_path: Path) -> None:
    encoder = LocalEncoder(support.target(tmp_path / "m"))
    texts = [f"text {n}" for n in range(600)]
    for chat in (False, True):
        assert encoder.encode_many(texts, chat) == [encoder.encode(text, chat) for text in texts]


@pytest.mark.parametrize("where", ["jinja file", "config", "named list", "nowhere"])
def test_where_a_chat_template_lies(tmp_path: Path, where: str) -> None:
    folder = support.target(tmp_path / "m", template=support.TEMPLATE if where == "jinja file" else None)
    entry: dict[str, Any] = {"bos_token": "<s>"}
    if where == "config":
        entry["chat_template"] = support.TEMPLATE
    elif where == "named list":
        entry["chat_template"] = [
            {"name": "tool_use", "template": "no"},
            {"name": "default", "template": support.TEMPLATE},
        ]
    support.write_json(folder / "tokenizer_config.json", entry)
    encoder = LocalEncoder(folder)
    assert encoder.has_chat == (where != "nowhere")
    if where == "nowhere":
        with pytest.raises(InvalidPlan, match="no chat template"):
            encoder.encode("hi", chat=True)
    else:
        assert encoder.encode("hi", chat=True)[0] == 1


def test_special_tokens_may_be_objects(tmp_path: Path) -> None:
    folder = support.target(tmp_path / "m", template="{{ bos_token }}{{ eos_token }}")
    assert LocalEncoder(folder).encode("hi", chat=True) == (1, 2)


def test_the_date_is_frozen_and_said(tmp_path: Path) -> None:
    """I2: two renders of a template that prints the date would differ from day to day."""
    dated = "Today Date: {{ strftime_now('%d %b %Y') }}\n{{ messages[0]['content'] }}"
    encoder = LocalEncoder(support.target(tmp_path / "m", template=dated, bos=False))
    assert encoder.findings() == ()
    ids = encoder.encode("hi", chat=True)
    assert ids == encoder.encode("Today Date: 26 Jul 2024\nhi", chat=False)
    (finding,) = encoder.findings()
    assert (finding.code, finding.severity) == ("TEMPLATE-DATE", "warning")
    assert FROZEN.date().isoformat() in finding.seen


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ raise_exception('only pairs') }}", "only pairs"),
        ("{% if %}", "cannot be rendered"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ messages[5].content.x }}", "undefined|no element"),
    ],
)
def test_templates_that_fail_are_one_sentence(source: str, expected: str) -> None:
    with pytest.raises(
        InvalidPlan, match=f"chat template of model cannot be rendered.*({expected})|{expected}"
    ):
        ChatTemplate(source, {}, "model").render("hi")


def test_the_template_language_of_real_models() -> None:
    source = (
        "{% for m in messages %}{% if loop.index > 9 %}{% break %}{% endif %}"
        "{% generation %}{{ m | tojson }}{% endgeneration %}{% endfor %}"
        "{% if tools %}never{% endif %}"
    )
    rendered = ChatTemplate(source, {}, "model").render("<é>")
    assert json.loads(rendered) == {"role": "user", "content": "<é>"}
    assert "<é>" in rendered


@pytest.mark.parametrize(
    ("break_it", "expected"),
    [
        (lambda f: (f / "tokenizer.json").unlink(), "has no tokenizer.json"),
        (lambda f: (f / "tokenizer.json").write_text("{}"), r"Cannot read .*tokenizer.json"),
        (lambda f: (f / "tokenizer_config.json").write_text("{"), r"Cannot read .*tokenizer_config.json"),
    ],
)
def test_broken_tokenizers_are_one_sentence(tmp_path: Path, break_it: Any, expected: str) -> None:
    folder = support.target(tmp_path / "m")
    break_it(folder)
    with pytest.raises(InvalidPlan, match=expected):
        LocalEncoder(folder)


def test_the_identity_changes_with_the_template(tmp_path: Path) -> None:
    folder = support.target(tmp_path / "m")
    before = LocalEncoder(folder).identity()
    (folder / "chat_template.jinja").write_text("other")
    assert LocalEncoder(folder).identity().digest != before.digest


class Tokenize(BaseHTTPRequestHandler):
    """POST /tokenize of a server whose ids are the text's bytes, with 99 in front of completions."""

    chat = True
    broken = False

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, reply = 200, b""
        if self.headers["Authorization"] != "Bearer k":
            status = 401
        elif "messages" in body:
            status = 200 if self.chat else 400
            reply = json.dumps({"tokens": list(body["messages"][0]["content"].encode())}).encode()
        else:
            assert body["add_special_tokens"] is True
            reply = json.dumps({"tokens": [99, *body["prompt"].encode()]}).encode()
        if self.broken:
            reply = b"<html>"
        self.send_response(status)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Tokenize) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


def test_a_server_s_tokenizer(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = RemoteEncoder(server, "m", "k")
    assert encoder.encode("ab", chat=False) == (99, 97, 98)
    assert encoder.encode_many(["a", "b"], chat=True) == [(97,), (98,)]
    assert encoder.has_chat
    encoder.close()
    monkeypatch.setattr(Tokenize, "chat", False)
    other = RemoteEncoder(server, "m", "k")
    assert not other.has_chat
    other.close()


def test_a_server_that_refuses_or_talks_nonsense(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = RemoteEncoder(server, "m", "wrong")
    with pytest.raises(EngineError, match="answered 401"):
        encoder.encode("a", chat=False)
    encoder.close()
    monkeypatch.setattr(Tokenize, "broken", True)
    encoder = RemoteEncoder(server, "m", "k")
    with pytest.raises(EngineError, match=r"answered 200 '<html>'; expected a list of token ids"):
        encoder.encode("a", chat=False)
    encoder.close()


def test_no_server_at_all() -> None:
    encoder = RemoteEncoder("http://127.0.0.1:1", "m")
    with pytest.raises(EngineError, match="Cannot tokenize"):
        encoder.encode("a", chat=False)
    encoder.close()
