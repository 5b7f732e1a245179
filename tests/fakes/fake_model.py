"""The fake's "model": next-token choices as a pure function of the context ids."""

from __future__ import annotations

import hashlib
import random
import re
import struct
from typing import Any

EOS = 256
ALPHABET = b"abcdefghijklmnopqrstuvwxyz    0123456789.,\n"


def digest(*parts: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big")


def unit(*parts: object) -> float:
    return digest(*parts) / 2**64


def text_of(ids: list[int]) -> str:
    return bytes(i for i in ids if 0 <= i < 256).decode("utf-8", errors="replace")


def float32(x: float) -> float:
    return struct.unpack(">f", struct.pack(">f", x))[0]  # type: ignore[no-any-return]


class Model:
    """Next-token choices as a function of the context ids."""

    def __init__(self, faults: dict[str, Any], launch_no: int) -> None:
        self.f = faults
        state = faults.get("state", "A")
        if isinstance(state, list):
            state = state[min(launch_no, len(state)) - 1]
        if state == "random":
            state = random.choice("AB")
        self.state = str(state)
        self.bits = str(faults.get("fingerprint") or self.state)
        self.overrides: dict[int, int] = {}
        self.margins: dict[int, float] = {}

    def scripted_text(self, ids: list[int]) -> tuple[str, str] | None:
        """(what should be said, what has been said so far) where the script knows the answer."""
        answers, solve = self.f.get("answers", {}), self.f.get("solve")
        if not answers and solve is None:
            return None
        text = text_of(ids)
        question, mark, said = text.rpartition("Answer:")
        if not mark:
            question, said = text, ""
        tail = question.rpartition("Question:")[2]
        for key, answer in answers.items():
            if key in tail:
                return str(answer), said
        if solve is None:
            return None
        found = re.findall(r"(\d+)\s*([-+*])\s*(\d+)", tail)
        if not found:
            return None
        a, op, b = found[-1]
        value = {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}[op]
        if unit("solve", self.f.get("solve_seed", ""), tail) >= float(solve):
            value += 1
        return f" {a} {op} {b} = {value}\n#### {value}", said

    def choices(self, ids: list[int]) -> tuple[int, int]:
        """First and second choice at a context, before states and faults."""
        scripted = self.scripted_text(ids)
        h = digest("next", tuple(ids))
        noise = [ALPHABET[h % len(ALPHABET)], ALPHABET[(h >> 16) % len(ALPHABET)]]
        if noise[0] == noise[1]:
            noise[1] = ALPHABET[((h >> 16) + 1) % len(ALPHABET)]
        if noise[0] == noise[1]:
            noise[1] = ord("!")
        first = noise[0]
        if scripted is not None and scripted[0].startswith(scripted[1]):
            rest = scripted[0][len(scripted[1]) :].encode()
            first = rest[0] if rest else EOS
        else:
            mean = float(self.f.get("mean_length", 24))
            if mean > 0 and unit("eos", tuple(ids)) < 1 / mean:
                first = EOS
        second = noise[1] if noise[1] != first else noise[0]
        return first, second

    def next(self, ids: list[int], state: str) -> int:
        """The token that this server says."""
        key = digest("ctx", tuple(ids))
        if key in self.overrides:
            return self.overrides[key]
        first, second = self.choices(ids)
        flip = state != "A" and unit("flip", state, tuple(ids)) < float(self.f.get("flip_rate", 0.1))
        return second if flip else first

    def margin(self, ids: list[int]) -> float:
        return self.margins.get(digest("ctx", tuple(ids)), float(self.f.get("margin", 0.25)))

    def top(self, ids: list[int], count: int, state: str, said: int) -> list[tuple[int, float]]:
        """(id, logprob) best first; `said`, the server's own choice, leads."""
        first, second = self.choices(ids)
        other = second if said == first else first
        # low enough that the listed probabilities sum to less than 1 whatever the margin is
        jitter = float32(-0.8 - 0.5 * unit("bits", self.bits, tuple(ids)))
        margin = self.margin(ids)
        pairs = [(said, jitter), (other, float32(jitter - margin))]
        fill = [t for t in (*ALPHABET, EOS) if t not in (said, other)]
        pairs += [(t, float32(jitter - margin - 3.0 - 0.5 * i)) for i, t in enumerate(dict.fromkeys(fill))]
        return pairs[: max(count, 1)]

    def prompt_logprob(self, ids: list[int], position: int) -> float:
        return float32(-8.0 * unit("prompt", self.bits, tuple(ids[: position + 1])))
