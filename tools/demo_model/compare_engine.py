"""Compare the drafts' tensors with the engine's, row by row, on real inputs.

Acceptance alone is a weak test of a head: one with wrong auxiliary layers or a wrong norm is still accepted
often. So vLLM runs in this process, what its draft model reads and returns is recorded, and the same rows
are computed from the exported weights. Engine: bf16; here: float32. Expected: relative errors of a bf16
computation (around one in a hundred) and, but for near ties, the same proposals.
"""

import argparse
import json
import os
import statistics
from dataclasses import dataclass, field
from typing import Any

import torch
from draft import Draft, Eagle3, History
from evaluate import ARMS, DRAFTS, engine_environment
from model import Target, rotary
from tokens import load_tokenizer, prompt
from torch import Tensor
from train import CORPUS, DEMO, load_draft, load_target


@dataclass
class Call:
    """One forward pass of the engine's draft model: inputs and the states that its logits come from."""

    ids: Tensor
    positions: Tensor
    hidden: Tensor
    out: Tensor


@dataclass
class Rows:
    """Relative error of each row (norm of the difference over the engine's norm), and equal proposals."""

    errors: list[float] = field(default_factory=list)
    same: int = 0

    def add(self, ours: Tensor, theirs: Tensor, same: bool = False) -> None:
        """One row."""
        self.errors.append(float((ours - theirs).norm() / theirs.norm()))
        self.same += same


def record(model: Any) -> list[Call]:
    """Calls of the draft model from now on."""
    calls: list[Call] = []

    def hook(_module: Any, _args: Any, kwargs: dict[str, Tensor], output: Any) -> None:
        out = output[0] if isinstance(output, tuple) else output
        read = (kwargs[name].detach().clone() for name in ("input_ids", "positions", "hidden_states"))
        calls.append(Call(*read, out.detach().float().clone()))

    model.register_forward_hook(hook, with_kwargs=True)
    return calls


@torch.no_grad()
def reference(draft: Draft, target: Target, ids: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """(what step 0 reads in place of hidden states, states and proposals of each step), rows by position."""
    streams = target.streams(ids)
    hidden = draft.start([stream[:, :-1] for stream in streams])
    first = hidden[0]
    embedding = target.model.embed_tokens(ids[:, 1:])
    rope, history = rotary(draft.shape, torch.arange(ids.shape[1] - 1)), History([], [])
    states, proposals = [], []
    for step in range(DRAFTS):
        if step:
            hidden = hidden.roll(1, dims=1)
        logits, hidden = draft.step(embedding, hidden, rope, history)
        states.append(draft.norm(hidden)[0] if isinstance(draft, Eagle3) else hidden[0])
        proposals.append(draft.tokens[logits.argmax(-1)][0])
    return first, states, proposals


def compare(
    calls: list[Call], ids: list[int], draft: Draft, target: Target, output: Tensor
) -> dict[str, Rows]:
    """Rows of the engine's calls for one sequence against ours, where the input is the sequence's token."""
    first, states, proposals = reference(draft, target, torch.tensor([ids]))
    found = {name: Rows() for name in ("input", *(f"step {step}" for step in range(DRAFTS)))}
    for index, call in enumerate(calls):
        step = index % DRAFTS
        if step and not on_path(calls[index - step + 1 : index + 1], ids):
            continue
        # The first pass also carries rows of rejected tokens; step 1 starts behind the last row that counts.
        last = int(calls[index + 1].positions[0]) - 1 if step == 0 else int(call.positions[0])
        for row, position in enumerate(call.positions.tolist()):
            if position > last or position + 1 >= len(ids) or int(call.ids[row]) != ids[position + 1]:
                break
            logits = call.out[row] @ output.T
            proposed = int(draft.tokens[logits.argmax()])
            same = proposed == int(proposals[step][position])
            found[f"step {step}"].add(states[step][position], call.out[row], same)
            if step == 0:
                found["input"].add(first[position], call.hidden[row].float())
    return found


def on_path(steps: list[Call], ids: list[int]) -> bool:
    """Whether every own token fed in so far is the sequence's."""
    return all(
        int(call.positions[0]) + 1 < len(ids) and int(call.ids[0]) == ids[int(call.positions[0]) + 1]
        for call in steps
    )


def main() -> None:
    """Run one arm over a few test problems, one at a time."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("arm", choices=["eagle3", "mtp"])
    parser.add_argument("--problems", type=int, default=10)
    options = parser.parse_args()
    os.environ |= engine_environment(f"compare-{options.arm}") | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    from vllm import LLM, SamplingParams

    folder, speculation = ARMS[options.arm]
    engine = LLM(
        model=str(folder),
        speculative_config=speculation,
        enforce_eager=True,
        max_model_len=1024,
        async_scheduling=False,
        enable_prefix_caching=False,
    )
    worker = engine.llm_engine.model_executor.driver_worker.worker
    calls = record(worker.model_runner.drafter.model)
    target, draft = load_target(), load_draft(options.arm)
    output = draft.lm_head.weight if isinstance(draft, Eagle3) else draft.output
    tokenizer = load_tokenizer(DEMO / "target")
    rows = [json.loads(line) for line in (CORPUS / "test.jsonl").read_text().splitlines()]
    total: dict[str, Rows] = {}
    for row in rows[: options.problems]:
        calls.clear()
        head = tokenizer.encode(prompt(row["question"])).ids
        request = {"prompt_token_ids": head}
        parameters = SamplingParams(temperature=0, max_tokens=160)
        tail = list(engine.generate(request, parameters, use_tqdm=False)[0].outputs[0].token_ids)
        for name, found in compare(calls, head + tail, draft, target, output.detach()).items():
            kept = total.setdefault(name, Rows())
            kept.same += found.same
            kept.errors += found.errors
    for name, kept in total.items():
        if not kept.errors:
            print(f"{options.arm} {name}: no rows to compare")
            continue
        count, median = len(kept.errors), statistics.median(kept.errors)
        said = "" if name == "input" else f", same proposal {kept.same} of {count}"
        print(
            f"{options.arm} {name}: {count} rows, relative error median {median:.4f}, "
            f"largest {max(kept.errors):.4f}{said}"
        )


if __name__ == "__main__":
    main()
