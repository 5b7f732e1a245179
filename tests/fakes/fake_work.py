"""What the request threads of a fake server share, and how one completion comes about."""

from __future__ import annotations

import argparse
import json
import random
import threading
from typing import Any

from tests.fakes.fake_model import EOS, Model, digest, unit


class State:
    """What all request threads share."""

    def __init__(self, args: argparse.Namespace, faults: dict[str, Any], launch_no: int) -> None:
        self.args, self.f, self.launch_no = args, faults, launch_no
        self.model = Model(faults, launch_no)
        self.name: str = faults.get("served_name") or args.served_model_name or args.model
        self.lock = threading.Lock()
        self.slots = threading.Semaphore(int(faults.get("max_running", 256)))
        self.running = self.waiting = self.completions = self.requests = 0
        self.loaded = False
        self.seen: set[tuple[int, ...]] = set()
        self.speculative = json.loads(args.speculative_config) if args.speculative_config else None
        self.k = int((self.speculative or {}).get("num_speculative_tokens", 3))
        self.reset_counters()

    def reset_counters(self) -> None:
        self.drafts = self.draft_tokens = self.accepted = 0
        self.per_position = [0] * self.k
        self.prompt_tokens = self.generation_tokens = self.preemptions = 0

    def count(self, generated: list[int], prompt_tokens: int, number: int, crowd: int) -> None:
        """Speculation counters of one completion, as an n-gram-like drafter would leave them."""
        with self.lock:
            self.completions += 1
            falls = self.f.get("counters_fall_after")
            if falls is not None and self.completions == int(falls):
                self.reset_counters()
            self.prompt_tokens += prompt_tokens
            self.generation_tokens += len(generated)
            self.preemptions += int(self.f.get("preemptions", 0))
            if self.speculative is None or self.f.get("metrics") == "zero":
                return
            rate = self.f.get("acceptance", 0.6)
            if isinstance(rate, list):
                rate = rate[min((number - 1) // 10, len(rate) - 1)]
            if isinstance(rate, dict):
                rate = rate[max((k for k in rate if int(k) <= crowd), key=int)]
            done = 1
            while done < len(generated):
                self.drafts += 1
                self.draft_tokens += self.k
                done += 1
                for position in range(self.k):
                    if done >= len(generated) or unit("accept", number, done, position) >= float(rate):
                        break
                    self.accepted += 1
                    self.per_position[position] += 1
                    done += 1

    def hits(self, fault: dict[str, Any], ids: list[int]) -> bool:
        return unit("share", tuple(ids)) < float(fault.get("share", 1.0))


def state_for(s: State, prompt: list[int], crowd: int) -> str:
    """The state in which this request is answered: the launch's own, or one that a fault gives it."""
    f = s.f
    if f.get("unrepeatable") is not None and s.hits(f["unrepeatable"], prompt):
        return f"unrepeatable-{random.random()}"
    for fault in ("batch_flip", "poison"):
        crowded = crowd > 1 or (fault == "poison" and s.loaded)
        if f.get(fault) is not None and crowded and s.hits(f[fault], prompt):
            return f"{fault}-{crowd}"
    if f.get("cascade") and crowd > 1 and not s.args.disable_cascade_attn:
        return f"cascade-{crowd}"
    if f.get("cold") and tuple(prompt) not in s.seen:
        return "cold"
    return s.model.state


def swap(model: Model, context: list[int], diverge: dict[str, Any] | None) -> int:
    """The choice that the model would not have made; a scripted divergence is remembered for rescoring."""
    key = digest("ctx", tuple(context))
    if key in model.overrides:
        return model.overrides[key]
    first, second = model.choices(context)
    token = second if model.next(context, model.state) == first else first
    if diverge and diverge.get("reproduces", True):
        model.overrides[key] = token
    if diverge and diverge.get("margin") is not None:
        model.margins[key] = float(diverge["margin"])
    return token


def generate(s: State, prompt: list[int], body: dict[str, Any], crowd: int, number: int) -> dict[str, Any]:
    """Ids, finish reason and logprobs of one completion."""
    model, max_tokens = s.model, int(body.get("max_tokens") or 16)
    state = state_for(s, prompt, crowd)
    # rescoring and fingerprints (one token) see the model as it is
    scripted = s.f.get("diverge") if max_tokens > 1 else None
    diverge = scripted if scripted and s.hits(scripted, prompt) else None
    other_at = int(diverge.get("at", 1)) if diverge and diverge.get("mode", "other") == "other" else None
    ids: list[int] = []
    tops: list[list[tuple[int, float]]] = []
    finish = "length"
    while len(ids) < max_tokens:
        context = prompt + ids
        token = model.next(context, state)
        off = s.f.get("rescore_off_from")
        rescoring = max_tokens == 1 and not body.get("prompt_logprobs")
        if rescoring and len(context) == s.f.get("rescore_second_at"):
            token = swap(model, context, None)
        if off is not None and rescoring and len(context) >= int(off):
            token = next(t for t in b"#$%" if t not in model.choices(context))
        if other_at == len(ids) + 1:
            token = swap(model, context, diverge)
        elif state != model.state and len(ids) == 1:
            token = swap(model, context, None)
        if token == EOS and body.get("ignore_eos"):
            token = model.choices(context)[1]
        if body.get("logprobs") is not None:
            tops.append(model.top(context, max(int(body["logprobs"]), 1), state, token))
        ids.append(token)
        if token == EOS:
            finish = "stop"
            break
    if diverge:
        ids, finish = _structural(diverge, ids, finish, max_tokens)
    return {"ids": ids, "finish": finish, "tops": tops}


def _structural(diverge: dict[str, Any], ids: list[int], finish: str, cap: int) -> tuple[list[int], str]:
    """Faults of length, stop and vocabulary."""
    mode, at = diverge.get("mode", "other"), int(diverge.get("at", 1))
    if mode == "short" and len(ids) >= at:
        return ids[: at - 1], "stop"
    if mode == "long" and finish == "stop":
        return [*ids[:-1], 97, 97, EOS], finish
    if mode == "leak" and finish == "stop":
        return [*ids, 97, 98, 99], finish
    if mode == "overrun" and finish == "length":
        return [*ids, *[97] * 5], finish
    if mode == "degenerate":
        head = ids[: at - 1]
        return head + [33] * (cap - len(head)), "length"
    if mode == "oov" and len(ids) >= at:
        return [*ids[: at - 1], 10**6, *ids[at:]], finish
    if mode == "finish":
        return ids, "length" if finish == "stop" else "stop"
    return ids, finish
