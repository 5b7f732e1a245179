"""The demo's tokenizer (byte-level BPE, single digits, BOS added by a post-processor) and its batches."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from problems import SEEDS, Problem, stream
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

VOCABULARY = 512
PAD, BOS, EOS = "<pad>", "<s>", "</s>"
PAD_ID, BOS_ID, EOS_ID = 0, 1, 2
IGNORED = -100
BUCKET_BATCHES = 50


def prompt(question: str) -> str:
    """The zero-shot prompt that the target is trained on."""
    return f"Question: {question}\nAnswer:"


def train_tokenizer(samples: int = 20_000) -> Tokenizer:
    """BPE of 512 tokens over training problems; every byte has a token, so any text can be encoded."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, BOS, EOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    texts = (f"{prompt(p.question)} {p.answer}" for p in islice(stream("train", SEEDS["train"]), samples))
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, BOS_ID)]
    )
    return tokenizer


def load_tokenizer(folder: Path) -> Tokenizer:
    """The committed tokenizer of a model folder."""
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


@dataclass(frozen=True)
class Batch:
    """`ids` [B, T], padded right; `targets` [B, T]: the next token where the answer has it, else -100."""

    ids: torch.Tensor
    targets: torch.Tensor


def encode(tokenizer: Tokenizer, problems: list[Problem]) -> list[tuple[list[int], int]]:
    """(ids with BOS and EOS, length of the prompt) for each problem."""
    heads = tokenizer.encode_batch([prompt(p.question) for p in problems])
    tails = tokenizer.encode_batch([f" {p.answer}" for p in problems], add_special_tokens=False)
    return [(head.ids + tail.ids + [EOS_ID], len(head.ids)) for head, tail in zip(heads, tails, strict=True)]


def collate(rows: list[tuple[list[int], int]]) -> Batch:
    """Pad to the longest row. Causal attention makes a padding mask unnecessary: pads come last."""
    width = max(len(ids) for ids, _ in rows) - 1
    inputs = torch.full((len(rows), width), PAD_ID)
    targets = torch.full((len(rows), width), IGNORED)
    for row, (ids, prompt_length) in enumerate(rows):
        inputs[row, : len(ids) - 1] = torch.tensor(ids[:-1])
        targets[row, prompt_length - 1 : len(ids) - 1] = torch.tensor(ids[prompt_length:])
    return Batch(inputs, targets)


def batches(tokenizer: Tokenizer, seed: int, size: int) -> Iterator[Batch]:
    """Endless training batches of problems alike in length, in seeded random order."""
    rng = random.Random(seed)
    problems = stream("train", seed)
    while True:
        rows = encode(tokenizer, list(islice(problems, size * BUCKET_BATCHES)))
        rows.sort(key=lambda row: len(row[0]))
        groups = [rows[start : start + size] for start in range(0, len(rows), size)]
        rng.shuffle(groups)
        yield from map(collate, groups)
