"""The fake's HTTP face: routes, replies, and the scripted faults of transport."""

from __future__ import annotations

import json
import math
import os
import random
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.fakes.fake_config import metrics_text, server_info
from tests.fakes.fake_model import EOS, text_of
from tests.fakes.fake_work import State, generate


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    # header and body leave as two packets; the second would wait 40 ms for the first one's acknowledgement
    disable_nagle_algorithm = True  # header and body are two writes: 40 ms a reply with Nagle
    server: Any

    def log_message(self, format: str, *args: Any) -> None:
        pass

    # -------------------------------------------------------------- plumbing

    @property
    def s(self) -> State:
        return self.server.state  # type: ignore[no-any-return]

    def reply(self, payload: Any, code: int = 200, content_type: str = "application/json") -> None:
        data = payload.encode() if isinstance(payload, str) else json.dumps(payload).encode()
        stall = self._stalls()
        if stall == "headers":
            time.sleep(3600)
        self.send_response(code)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if stall == "body":
            self.wfile.write(data[: len(data) // 2])
            self.wfile.flush()
            time.sleep(3600)
        self.wfile.write(data)

    def _stalls(self) -> str | None:
        stall = self.s.f.get("stall")
        if not stall or not self.path.startswith("/v1/completions"):
            return None
        after, count = int(stall.get("after", 0)), int(stall.get("count", 10**9))
        hit = after < self.number <= after + count
        return str(stall.get("mode", "body")) if hit else None

    def error(self, code: int, message: str, kind: str = "BadRequestError") -> None:
        self.reply({"error": {"message": message, "type": kind, "param": None, "code": code}}, code)

    # -------------------------------------------------------------- routes

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        f = self.s.f
        if path == "/health":
            self.reply("", 200)
        elif path == "/version":
            self.reply({"version": f.get("version", "0.32.0")})
        elif path == "/v1/models":
            card = {"id": self.s.name, "object": "model", "owned_by": "vllm", "root": self.s.args.model,
                    "max_model_len": self.s.args.max_model_len or 4096}  # fmt: skip
            self.reply({"object": "list", "data": [card]})
        elif path == "/metrics" and f.get("metrics") != "absent":
            self.reply(metrics_text(self.s), content_type="text/plain; version=0.0.4; charset=utf-8")
        elif (
            path == "/server_info" and not f.get("server_info_off") and os.environ.get("VLLM_SERVER_DEV_MODE")
        ):
            self.reply(server_info(self.s))
        else:
            self.error(404, "Not Found", "NotFoundError")

    def do_POST(self) -> None:
        path = self.path.split("?")[0]
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        key = self.s.args.api_key
        if key and self.headers.get("authorization") != f"Bearer {key}":
            self.error(401, "Unauthorized", "AuthenticationError")
            return
        try:
            body = json.loads(raw or b"{}")
        except ValueError:
            self.error(400, "the body is no JSON")
            return
        if path == "/v1/completions":
            self.completions(body)
        elif path == "/tokenize" and "messages" in body:
            self.error(400, "As of transformers v4.44, default chat template is no longer allowed")
        elif path == "/tokenize":
            ids = list(str(body.get("prompt", "")).encode())
            self.reply({"count": len(ids), "max_model_len": 4096, "tokens": ids, "token_strs": None})
        elif path == "/detokenize":
            self.reply({"prompt": text_of(body.get("tokens", []))})
        elif path == "/reset_prefix_cache":
            self.reply("", 200)
        else:
            self.error(404, "Not Found", "NotFoundError")

    def completions(self, body: dict[str, Any]) -> None:
        s, f = self.s, self.s.f
        with s.lock:
            s.requests += 1
            self.number = s.requests
            if f.get("request_log"):
                with open(f["request_log"], "a") as log:
                    log.write(json.dumps({"arm": s.name, "running": s.running, "body": body}) + "\n")
        if f.get("healthy_then_dies"):
            sys.stderr.write("RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x192 and 576x192)\n")
            sys.stderr.flush()
            os._exit(1)
        if f.get("engine_dead"):
            self.error(500, "EngineCore encountered an issue. See stack trace (above).", "EngineDeadError")
            return
        prompt = body.get("prompt")
        ids = list(prompt.encode()) if isinstance(prompt, str) else list(prompt or [])
        if not ids or not all(isinstance(i, int) for i in ids):
            self.error(400, "prompt must be a string or a list of token ids")
            return
        if body.get("model") != s.name:
            self.error(404, f"The model `{body.get('model')}` does not exist.", "NotFoundError")
            return
        if self._faulty_transport(ids, body):
            return
        with s.lock:
            s.waiting += 1
        with s.slots:
            with s.lock:
                s.waiting -= 1
                s.running += 1
                crowd = s.running
                s.loaded = s.loaded or crowd > 1
            try:
                self._latency(0.0 if "latency_ms" not in f else float(f["latency_ms"]))
                crowd = max(crowd, s.running)
                made = generate(s, ids, body, crowd, self.number)
                self._latency(float(f.get("jitter_ms", 0)) * random.random())
                self._latency(float(f.get("per_token_ms", 0)) * len(made["ids"]))
            finally:
                with s.lock:
                    s.running -= 1
        s.count(made["ids"], len(ids), self.number, crowd)
        self.reply(completion_reply(s, body, ids, made, self.number))

    @staticmethod
    def _latency(milliseconds: float) -> None:
        if milliseconds > 0:
            time.sleep(milliseconds / 1000)

    def _faulty_transport(self, ids: list[int], body: dict[str, Any]) -> bool:
        """True when a scripted fault has answered (or dropped) this request."""
        f = self.s.f
        if f.get("logprobs_500") and body.get("logprobs") is not None and not body.get("prompt_logprobs"):
            self.error(500, "Out of range float values are not JSON compliant", "InternalServerError")
            return True
        too_long = f.get("die_at_prompt") is not None and len(ids) > int(f["die_at_prompt"])
        if too_long or (f.get("die_after") is not None and self.number > int(f["die_after"])):
            sys.stderr.write("RuntimeError: CUDA error: an illegal memory access was encountered\n")
            sys.stderr.flush()
            os._exit(1)
        if f.get("reset_after") is not None and self.number > int(f["reset_after"]):
            self.close_connection = True
            self.connection.close()
            return True
        if f.get("not_json_after") is not None and self.number > int(f["not_json_after"]):
            self.reply("<html>no JSON here</html>", content_type="text/html")
            return True
        status = f.get("status")
        if status:
            after, count = int(status.get("after", 0)), int(status.get("count", 10**9))
            if after < self.number <= after + count and self.s.hits(status, ids):
                self.error(int(status["code"]), f"scripted {status['code']}", "InternalServerError")
                return True
        return False


def completion_reply(
    s: State, body: dict[str, Any], prompt: list[int], made: dict[str, Any], number: int
) -> dict[str, Any]:
    f, ids = s.f, made["ids"]
    stop = [i for i in ids if i != EOS]
    text = text_of(stop) + "x" * int(f.get("big_reply", 0)) + str(f.get("text_suffix", ""))
    if f.get("echo_prompt"):
        text = text_of(prompt) + "\N{REPLACEMENT CHARACTER}" + text
    cached = f.get("cached_tokens")
    if f.get("cold"):
        cached = int(f["cold"]["cached"]) if tuple(prompt) in s.seen else 0
        s.seen.add(tuple(prompt))
    choice: dict[str, Any] = {
        "index": 0, "text": text, "finish_reason": made["finish"], "stop_reason": None, "logprobs": None,
    }  # fmt: skip
    if body.get("return_token_ids"):
        if not f.get("token_ids_absent"):
            choice["token_ids"] = ids
        choice["prompt_token_ids"] = [*prompt[:-1], 0] if f.get("prompt_ids_wrong") else prompt
    if body.get("logprobs") is not None and not f.get("logprobs_absent"):
        choice["logprobs"] = logprobs_reply(s, body, ids, made["tops"])
    if body.get("prompt_logprobs") is not None:
        listed = whole_positions if s.args.max_num_seqs == 1 else single_positions
        choice["prompt_logprobs"] = [None, *listed(s, prompt)]
    reply: dict[str, Any] = {
        "id": f"cmpl-{number}", "object": "text_completion", "created": int(time.time()), "model": s.name,
        "system_fingerprint": "fake", "choices": [choice],
    }  # fmt: skip
    if not f.get("usage_absent"):
        completion_tokens = len(ids) + int(f.get("usage_off_by", 0))
        reply["usage"] = {
            "prompt_tokens": len(prompt), "completion_tokens": completion_tokens,
            "total_tokens": len(prompt) + completion_tokens,
            "prompt_tokens_details": None if cached is None else {"cached_tokens": cached},
        }  # fmt: skip
    return reply


def single_positions(s: State, prompt: list[int]) -> list[dict[str, Any]]:
    """The prompt's own tokens alone: enough for a fingerprint, and cheap."""
    return [
        {str(prompt[i]): {"logprob": odd(s, s.model.prompt_logprob(prompt, i)), "rank": 1,
                          "decoded_token": text_of([prompt[i]])}}
        for i in range(1, len(prompt))
    ]  # fmt: skip


def whole_positions(s: State, prompt: list[int]) -> list[dict[str, Any]]:
    """What this server would have said at every position, its own choice first: for forced paths."""
    made = []
    for i in range(1, len(prompt)):
        context = prompt[:i]
        said = s.model.next(context, s.model.state)
        entries = {str(t): {"logprob": odd(s, v)} for t, v in s.model.top(context, 5, s.model.state, said)}
        made.append(
            {**entries, **({} if str(prompt[i]) in entries else {str(prompt[i]): {"logprob": -20.0}})}
        )
    return made


def odd(s: State, logprob: float) -> float:
    """Scripted logprob faults."""
    if s.f.get("nan_logprobs"):
        return math.nan
    if s.f.get("inf_logprobs"):
        return -math.inf
    if s.f.get("constant_logprobs") is not None:
        return float(s.f["constant_logprobs"])
    return logprob


def logprobs_reply(
    s: State, body: dict[str, Any], ids: list[int], tops: list[list[tuple[int, float]]]
) -> dict[str, Any]:
    def name(token: int) -> str:
        return f"token_id:{token}" if body.get("return_tokens_as_token_ids") else text_of([token])

    token_logprobs, top_logprobs = [], []
    for token, top in zip(ids, tops, strict=False):
        of = dict(top)
        token_logprobs.append(odd(s, of.get(token, -9999.0)))
        top_logprobs.append({name(t): odd(s, lp) for t, lp in top})
    return {"tokens": [name(t) for t in ids], "token_logprobs": token_logprobs, "top_logprobs": top_logprobs,
            "text_offset": list(range(len(ids)))}  # fmt: skip


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that went away is not worth a traceback in the log
