"""The client against a server that answers with raw bytes: every fault is data, with its reason."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from auditor.clock import RealClock
from auditor.errors import InvalidPlan
from auditor.measure import client as client_module
from auditor.measure.client import Client, deadline_s, within
from auditor.model.completion import Answer, Completion, RequestFailure
from auditor.model.launch import Fingerprint
from auditor.model.phase import Counters
from tests.measure.support import CUT, ManualClock, RawServer, http, prompt, raw_server, reply, settle

GOOD = http(reply([1, 2]))


def ask(
    *script: bytes | None,
    requests: int = 1,
    drive: Callable[[ManualClock], None] | None = None,
    **options: Any,
) -> tuple[list[Answer], RawServer]:
    """Answers to `requests` requests over one client, and what the server saw."""

    async def main() -> tuple[list[Answer], RawServer]:
        clock = ManualClock()
        async with raw_server(*script) as server, Client(server.url, "m-1", clock, **options) as client:
            answers = []
            for i in range(requests):
                task = asyncio.ensure_future(client.complete(prompt(f"c/{i}"), phase="p", repeat=i))
                if drive is not None:
                    while not server.requests:
                        await asyncio.sleep(0)
                    await settle()
                    drive(clock)
                answers.append(await task)
            return answers, server

    return asyncio.run(main())


def failure(*script: bytes | None, **options: Any) -> RequestFailure:
    (answer,), server = ask(*script, **options)
    assert isinstance(answer, RequestFailure)
    assert len(server.requests) == 1, "a request is never repeated"
    return answer


def test_a_completion_is_kept_as_it_came() -> None:
    body = reply([1, 2], stop_reason=2) | {
        "usage": {"prompt_tokens": 3, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 2}}
    }
    (answer,), _ = ask(http(body))
    assert answer == Completion(
        phase="p",
        prompt="c/0",
        token_ids=(1, 2),
        text="t",
        finish_reason="stop",
        stop_reason=2,
        usage_prompt=3,
        usage_completion=9,
        usage_cached=2,
        prompt_ids_match=True,
        started_s=0.0,
        ended_s=0.0,
    )


def test_i8_what_is_absent_stays_absent() -> None:
    body = reply([1, 2])
    del body["usage"], body["choices"][0]["prompt_token_ids"]
    (answer,), _ = ask(http(body))
    assert isinstance(answer, Completion)
    assert (answer.usage_completion, answer.usage_cached, answer.prompt_ids_match) == (None, None, None)
    assert answer.logprobs is None


def test_logprobs_are_read_only_where_asked_for() -> None:
    (answer,), _ = ask(http(reply([1], logprobs={"token_logprobs": [-0.5]})))
    assert isinstance(answer, Completion)
    assert answer.logprobs is None


@pytest.mark.parametrize(
    ("answer", "reason", "words"),
    [
        (http(b'{"error": "EngineDeadError"}', "500 Internal Server Error"), "http-500", "EngineDeadError"),
        (http(b"slow down", "429 Too Many Requests"), "http-429", "slow down"),
        (http(b"", "307 Temporary Redirect", "Location: /elsewhere\r\n"), "http-307", "(empty body)"),
        (http(b"nonsense"), "bad-reply", "nonsense"),
        (http(reply([1], model="m-2")), "foreign-nonce", "m-2"),
        (http(reply([1], sent=[1])), "prompt-mismatch", "prompt id 1 was sent as 5"),
        (CUT, "connection", "127.0.0.1"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\nhalf" + CUT, "connection", "received 4 bytes"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "connection", "illegal status line"),
    ],
)
def test_faults_are_data(answer: bytes, reason: str, words: str) -> None:
    found = failure(answer)
    assert found.reason == reason
    assert words in found.detail


def test_a_refused_connection_is_data() -> None:
    async def main() -> Answer:
        async with raw_server() as server:
            url = server.url
        async with Client(url, "m-1", ManualClock()) as client:
            return await client.complete(prompt("c/0"), phase="p")

    answer = asyncio.run(main())
    assert isinstance(answer, RequestFailure)
    assert answer.reason == "connection"


@pytest.mark.parametrize(
    "script",
    [None, b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\nhalf a body, then silence"],
    ids=["no byte", "stalls mid-body"],
)
def test_i10_a_silent_server_is_a_timeout_and_is_asked_once(script: bytes | None) -> None:
    (answer,), server = ask(script, drive=lambda clock: clock.advance(31.0), timeout_s=31.0)
    assert isinstance(answer, RequestFailure)
    assert (answer.reason, answer.detail) == ("timeout", "no reply within 31 s")
    assert (answer.started_s, answer.ended_s) == (0.0, 31.0)
    assert len(server.requests) == 1


def test_a_client_goes_on_after_faults_with_one_connection_at_a_time() -> None:
    answers, server = ask(GOOD, http(b"x", "500 Internal Server Error"), GOOD, CUT, GOOD, GOOD, requests=6)
    assert [getattr(a, "reason", "ok") for a in answers] == ["ok", "http-500", "ok", "connection", "ok", "ok"]
    assert [a.repeat for a in answers] == list(range(6))
    assert server.connections == 2


def test_ten_megabytes_are_fine() -> None:
    (answer,), _ = ask(http(reply([1, 2], text="x" * 10**7)))
    assert isinstance(answer, Completion)
    assert len(answer.text) == 10**7


def test_a_runaway_reply_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_REPLY_BYTES", 2**20)
    found = failure(http(reply([1], text="x" * 2**21)))
    assert (found.reason, found.detail) == ("bad-reply", "the reply is longer than 1 MiB")


def test_what_is_sent() -> None:
    _, server = ask(GOOD, api_key="secret", seed=11)
    line, headers, body = server.requests[0]
    assert line == "POST /v1/completions HTTP/1.1"
    assert headers["authorization"] == "Bearer secret"
    assert headers["host"] == f"127.0.0.1:{server.port}"
    sent = json.loads(body)
    assert (sent["prompt"], sent["max_tokens"], sent["seed"]) == ([5, 6, 7], 8, 11)
    assert "logprobs" not in sent


def test_environment_proxies_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    (answer,), _ = ask(GOOD)
    assert isinstance(answer, Completion)


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "localhost:8000", "ftp://h/", "http://", ""])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidPlan, match="http://HOST:PORT"):
        Client(url, "m-1", ManualClock())


@pytest.mark.parametrize("key", ["two\nlines", "schlüssel"])
def test_a_key_that_cannot_be_sent_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(InvalidPlan) as caught:
        Client("http://h:1", "m-1", ManualClock(), api_key=key)
    assert key not in str(caught.value)


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_the_root_is_found_with_and_without_v1(suffix: str) -> None:
    async def main() -> str:
        async with raw_server(GOOD) as server:
            async with Client(server.url + suffix, "m-1", ManualClock()) as client:
                await client.complete(prompt("c/0"), phase="p")
            return server.requests[0][0]

    assert asyncio.run(main()) == "POST /v1/completions HTTP/1.1"


@pytest.mark.parametrize(
    ("max_tokens", "in_flight", "expected"),
    [(16, 1, 600.0), (4096, 8, 600.0), (8192, 1, 1200.0), (4096, 32, 2400.0), (8192, 16, 2400.0)],
)
def test_deadlines_grow_with_the_cap_and_the_crowd(max_tokens: int, in_flight: int, expected: float) -> None:
    assert deadline_s(600.0, max_tokens, in_flight) == expected


def with_client(work: Callable[[Client], Awaitable[Any]], *script: bytes | None) -> tuple[Any, RawServer]:
    async def main() -> tuple[Any, RawServer]:
        async with raw_server(*script) as server, Client(server.url, "m-1", RealClock()) as client:
            return await work(client), server

    return asyncio.run(main())


TOP = {"token_logprobs": [-0.5], "top_logprobs": [{"token_id:9": -0.5, "token_id:4": -1.0}]}


def test_a_score_is_one_forced_position() -> None:
    score, server = with_client(
        lambda c: c.score(
            prompt("c/0"), [8, 9], launch="a-1", pair_arm="k", expected=9, decode_logprob=-0.25
        ),
        http(reply([9], sent=[5, 6, 7, 8, 9], logprobs=TOP)),
    )
    sent = json.loads(server.requests[0][2])
    assert (sent["prompt"], sent["max_tokens"], sent["logprobs"]) == ([5, 6, 7, 8, 9], 1, 20)
    assert (score.position, score.chosen, score.error) == (3, 9, None)
    assert [(t.token, t.logprob) for t in score.top] == [(9, -0.5), (4, -1.0)]
    assert (score.launch, score.pair_arm, score.expected, score.decode_logprob) == ("a-1", "k", 9, -0.25)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (http(b"nan is not JSON", "500 Internal Server Error"), "http-500: nan is not JSON"),
        (http(reply([])), "bad-reply: no token was generated"),
    ],
)
def test_d9_a_score_that_fails_says_why_and_is_not_repeated(answer: bytes, error: str) -> None:
    score, server = with_client(lambda c: c.score(prompt("c/0"), [], launch="a-1", pair_arm="k"), answer)
    assert (score.chosen, score.top, score.error) == (None, (), error)
    assert len(server.requests) == 1


def test_a_fingerprint_covers_all_prompts() -> None:
    entry = {"6": {"logprob": -1.5, "rank": 1}}
    body = http(reply([9], prompt_logprobs=[None, entry, entry], logprobs=TOP))
    found, server = with_client(lambda c: c.fingerprint([prompt("f/0"), prompt("f/1")], "a-1"), body)
    assert isinstance(found, Fingerprint)
    assert [p.prompt for p in found.prompts] == ["f/0", "f/1"]
    sent = json.loads(server.requests[1][2])
    assert (sent["max_tokens"], sent["prompt_logprobs"], sent["logprobs"]) == (1, 5, 5)


@pytest.mark.parametrize(
    ("answer", "reason", "words"),
    [
        (http(reply([9])), "bad-reply", "prompt_logprobs"),
        (http(b"no", "400 Bad Request"), "http-400", "no"),
    ],
)
def test_a_missing_fingerprint_is_data(answer: bytes, reason: str, words: str) -> None:
    found, _ = with_client(lambda c: c.fingerprint([prompt("f/0")], "a-1"), answer)
    assert isinstance(found, RequestFailure)
    assert (found.phase, found.prompt, found.reason) == ("fingerprint/a-1", "f/0", reason)
    assert words in found.detail


METRICS = b"vllm:num_requests_running 3\nvllm:num_requests_waiting 1\nvllm:generation_tokens_total 7\n"


@pytest.mark.parametrize(
    ("answer", "counters", "running"),
    [
        (http(METRICS), Counters(generation_tokens=7), (3, 1)),
        (http(b"", "404 Not Found"), None, None),
        (http(b"\xff"), Counters(), None),
        (CUT, None, None),
    ],
)
def test_metrics_that_are_absent_are_none(
    answer: bytes, counters: Counters | None, running: tuple[int, int] | None
) -> None:
    async def both(client: Client) -> tuple[Any, Any]:
        return await client.counters(), await client.running()

    found, _ = with_client(both, answer)
    assert found == (counters, running)


def test_a_refusing_metrics_page_is_an_answer_a_dead_one_is_none() -> None:
    refused, _ = with_client(lambda c: c.load(), http(b"", "404 Not Found"))
    dead, _ = with_client(lambda c: c.load(), CUT)
    assert refused is not None
    assert refused.running is None
    assert dead is None


def test_cancelling_from_outside_comes_through_and_leaves_the_client_usable() -> None:
    async def main() -> Answer:
        async with raw_server(None, GOOD) as server, Client(server.url, "m-1", RealClock()) as client:
            task = asyncio.ensure_future(client.complete(prompt("c/0"), phase="p"))
            while not server.requests:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await client.complete(prompt("c/1"), phase="p")

    assert isinstance(asyncio.run(main()), Completion)


def test_work_that_fails_while_it_is_given_up_is_not_reported() -> None:
    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("late")

    async def main() -> None:
        clock = ManualClock()
        task = asyncio.ensure_future(within(clock, 5.0, stubborn()))
        await settle()
        clock.advance(5.0)
        assert await task is None

    asyncio.run(main())
