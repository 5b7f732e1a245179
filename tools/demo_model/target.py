"""Train the target: a fixed number of steps, so that no test problem can decide when to stop."""

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from model import Shape, Target
from problems import SEEDS, unique
from tokenizers import Tokenizer
from tokens import EOS_ID, IGNORED, batches, prompt


@dataclass(frozen=True)
class Recipe:
    """Optimiser settings; one seed decides initial weights, problems and their order."""

    steps: int = 3600
    batch: int = 32
    rate: float = 2e-3
    warmup: int = 100
    floor: float = 0.05
    weight_decay: float = 0.01
    seed: int = 20261130

    def rate_at(self, step: int) -> float:
        """Linear warm-up, then a cosine down to `floor` of the peak."""
        if step < self.warmup:
            return self.rate * (step + 1) / self.warmup
        progress = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.rate * (self.floor + (1 - self.floor) * (1 + math.cos(math.pi * progress)) / 2)


def optimiser(parameters: list[torch.nn.Parameter], recipe: Recipe) -> torch.optim.AdamW:
    """AdamW with the decay on matrices only."""
    groups = [
        {"params": [p for p in parameters if p.dim() == 2], "weight_decay": recipe.weight_decay},
        {"params": [p for p in parameters if p.dim() != 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=recipe.rate, betas=(0.9, 0.97), eps=1e-8)


def strict_answer(text: str) -> str | None:
    """The last `#### N` before any next question, or None."""
    found = re.findall(r"#### (-?[0-9.,]+)", text.split("Question:")[0])
    return found[-1] if found else None


def validation_accuracy(target: Target, tokenizer: Tokenizer, count: int = 60) -> float:
    """Share of validation problems (never test problems) answered right, greedy."""
    problems = unique("validation", SEEDS["validation"], count)
    prompts = [encoding.ids for encoding in tokenizer.encode_batch([prompt(p.question) for p in problems])]
    outputs = target.greedy(prompts, 100, EOS_ID)
    return (
        sum(
            strict_answer(tokenizer.decode(ids)) == strict_answer(problem.answer)
            for problem, ids in zip(problems, outputs, strict=True)
        )
        / count
    )


def train_target(tokenizer: Tokenizer, recipe: Recipe, say: Callable[[str], None]) -> Target:
    """The trained target (float32). Loss on the answer's tokens only."""
    torch.manual_seed(recipe.seed)
    target = Target(Shape())
    parameters = list(target.parameters())
    optimise = optimiser(parameters, recipe)
    say(f"target: {sum(p.numel() for p in parameters):,} parameters")
    started = time.monotonic()
    for step, batch in zip(range(recipe.steps), batches(tokenizer, recipe.seed, recipe.batch), strict=False):
        for group in optimise.param_groups:
            group["lr"] = recipe.rate_at(step)
        wanted = batch.targets != IGNORED
        logits = target.logits(target.streams(batch.ids)[-1][wanted])
        loss = F.cross_entropy(logits, batch.targets[wanted])
        optimise.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimise.step()
        if (step + 1) % 50 == 0:
            say(f"target step {step + 1}: loss {loss.item():.4f}, {time.monotonic() - started:.0f} s")
    say(f"target: validation {validation_accuracy(target, tokenizer):.2f}")
    return target
