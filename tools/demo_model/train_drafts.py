"""Train the drafts on the frozen target's own distributions (three-step training-time test)."""

import time
from collections import Counter
from collections.abc import Callable
from itertools import islice

import torch
import torch.nn.functional as F
from draft import Draft, chain
from model import Target
from problems import SEEDS, stream
from target import Recipe, optimiser
from tokenizers import Tokenizer
from tokens import IGNORED, batches, encode
from torch import Tensor

STEPS = 3
STEP_DECAY = 0.8
DRAFT_VOCABULARY = 192
RECIPE = Recipe(steps=1500, batch=24, rate=2e-3, warmup=50)


def draft_tokens(tokenizer: Tokenizer, samples: int = 20_000) -> Tensor:
    """The target ids most frequent in training answers, ascending: fewer than occur in them, on purpose."""
    counts: Counter[int] = Counter()
    for ids, length in encode(tokenizer, list(islice(stream("train", SEEDS["train"]), samples))):
        counts.update(ids[length:])
    if len(counts) <= DRAFT_VOCABULARY:
        raise ValueError(f"{len(counts)} tokens occur; the draft vocabulary must be smaller")
    return torch.tensor(sorted(token for token, _ in counts.most_common(DRAFT_VOCABULARY)))


def chain_loss(draft: Draft, target: Target, ids: Tensor, targets: Tensor) -> tuple[Tensor, list[float]]:
    """(loss, share of right proposals a step) for one batch.

    Cross-entropy against the target's distribution over the draft vocabulary, where the answer's tokens are
    predicted and the target's own first choice can be proposed at all; step j weighs 0.8^j.
    """
    with torch.no_grad():
        streams = target.streams(ids)
        logits = target.logits(streams[-1][:, 1:])
        best = logits.argmax(-1)
        wanted = (targets[:, 1:] != IGNORED) & torch.isin(best, draft.tokens)
        answer = targets[:, 1:] != IGNORED
        goal = logits[..., draft.tokens].softmax(-1)
    loss = torch.zeros(())
    right = []
    for step, proposal in enumerate(chain(draft, target, ids, streams, STEPS)):
        rows = wanted.clone()
        rows[:, :step] = False
        loss = loss + STEP_DECAY**step * F.cross_entropy(proposal[rows], goal[rows])
        right.append((draft.tokens[proposal.argmax(-1)] == best)[answer].float().mean().item())
    return loss, right


def train_draft(
    draft: Draft, target: Target, tokenizer: Tokenizer, recipe: Recipe, say: Callable[[str], None]
) -> None:
    """Train in place; the target stays as it is."""
    parameters = list(draft.parameters())
    optimise = optimiser(parameters, recipe)
    name = type(draft).__name__
    say(f"{name}: {sum(p.numel() for p in parameters):,} parameters, {len(draft.tokens)} tokens")
    started = time.monotonic()
    source = batches(tokenizer, recipe.seed + 1, recipe.batch)
    for step, batch in zip(range(recipe.steps), source, strict=False):
        for group in optimise.param_groups:
            group["lr"] = recipe.rate_at(step)
        loss, right = chain_loss(draft, target, batch.ids, batch.targets)
        optimise.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimise.step()
        if (step + 1) % 50 == 0:
            shares = "/".join(f"{share:.2f}" for share in right)
            spent = time.monotonic() - started
            say(f"{name} step {step + 1}: loss {loss.item():.3f}, right {shares}, {spent:.0f} s")
