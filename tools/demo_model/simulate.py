"""What the engine's counters should read, from our own tensors and the engine's completions.

With greedy decoding the proposals decide everything: a walk over each completion with those of
`draft.chain` gives the number of drafts and of accepted tokens by position. The engine computes in bf16 and
also counts what it accepts behind the end-of-sequence token, so the two agree closely and not exactly.
"""

import argparse
import json

import torch
from draft import chain
from evaluate import DRAFTS
from tokens import load_tokenizer, prompt
from train import CORPUS, DEMO, WORK, load_draft, load_target


def walk(proposals: list[list[int]], ids: list[int], prompt_length: int) -> tuple[int, list[int]]:
    """(drafts, accepted by position) of one sequence; `proposals[j][q]` is for the token at q + 2."""
    drafts, accepted = 0, [0] * DRAFTS
    anchor = prompt_length - 1
    while anchor + 2 < len(ids):
        drafts += 1
        count = 0
        while count < DRAFTS and anchor + count + 2 < len(ids):
            if proposals[count][anchor + count] != ids[anchor + count + 2]:
                break
            accepted[count] += 1
            count += 1
        anchor += count + 1
    return drafts, accepted


@torch.no_grad()
def main() -> None:
    """Walk the completions of an arm that evaluate.py wrote."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("arm", choices=["eagle3", "mtp"])
    arm = parser.parse_args().arm
    torch.set_num_threads(1)
    target, draft, tokenizer = load_target(), load_draft(arm), load_tokenizer(DEMO / "target")
    problems = [json.loads(line) for line in (CORPUS / "test.jsonl").read_text().splitlines()]
    outputs = [json.loads(line) for line in (WORK / f"{arm}.jsonl").read_text().splitlines()]
    drafts, accepted, lengths = 0, [0] * DRAFTS, []
    for problem, output in zip(problems, outputs, strict=True):
        head = tokenizer.encode(prompt(problem["question"])).ids
        ids = torch.tensor([head + output["ids"]])
        steps = chain(draft, target, ids, target.streams(ids), DRAFTS)
        proposals = [draft.tokens[logits[0].argmax(-1)].tolist() for logits in steps]
        count, by_position = walk(proposals, ids[0].tolist(), len(head))
        drafts += count
        accepted = [total + more for total, more in zip(accepted, by_position, strict=True)]
        lengths.append(1 + sum(by_position) / count)
    lengths.sort()
    quantiles = ", ".join(
        f"{lengths[int(share * (len(lengths) - 1))]:.2f}" for share in (0, 0.05, 0.5, 0.95, 1)
    )
    length = 1 + sum(accepted) / drafts
    print(f"{arm}: {drafts} drafts, accepted {sum(accepted)} {accepted}, length {length:.3f}")
    print(f"{arm}: acceptance length of a problem, quantiles 0/5/50/95/100%: {quantiles}")


if __name__ == "__main__":
    main()
