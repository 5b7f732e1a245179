"""The two drafts, an EAGLE-3 head and an MTP layer, and the chain in which both are trained and run.

A chain is what a speculative engine does: the first step at position q reads the target's hidden state at q
and the embedding of the token at q + 1, and proposes the token at q + 2; each later step reads the draft's
own output one position earlier in place of the target's hidden state. Keys of the first step come from the
target's states, keys of later steps from the draft's own. The training-time test of the EAGLE-3 paper runs
this chain for all positions at once; with the true tokens fed in, it gives exactly the proposals an engine
makes for as long as they are accepted.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from model import MLP, Attention, RMSNorm, Rotary, Shape, Target, rotary
from torch import Tensor, nn

AUX_LAYERS = (1, 2, 4)


class History(NamedTuple):
    """Keys and values [B, heads, T, head size] of the steps so far."""

    keys: list[Tensor]
    values: list[Tensor]


def chain_attention(attention: Attention, x: Tensor, rope: Rotary, history: History) -> Tensor:
    """Attention of step j = len(history.keys) (0 first), which appends its keys and values.

    The query at q sees step 0's keys up to q - j and the key of step i > 0 at q - (j - i): the chain that
    began at q - j. Rows q < j have no such chain; their output is finite and means nothing.
    """
    q, k, v = attention.project(x, rope)
    history.keys.append(k)
    history.values.append(v)
    step = len(history.keys) - 1
    if step == 0:
        return attention.join(F.scaled_dot_product_attention(q, k, v, is_causal=True))
    length = q.shape[2]
    scale = q.shape[3] ** -0.5
    allowed = torch.ones(length, length, dtype=torch.bool).tril(-step)
    scores = [(q @ history.keys[0].transpose(2, 3) * scale).masked_fill(~allowed, -1e9)]
    for i in range(1, step + 1):
        own = history.keys[i].roll(step - i, dims=2)
        scores.append((q * own).sum(-1, keepdim=True) * scale)
    weights = torch.cat(scores, dim=-1).softmax(-1)
    out = weights[..., :length] @ history.values[0]
    for i in range(1, step + 1):
        out = out + weights[..., length + i - 1, None] * history.values[i].roll(step - i, dims=2)
    return attention.join(out)


class MidLayer(nn.Module):
    """EAGLE-3's only layer: attention over [embedding, hidden], both normed; residual from hidden."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape.hidden, shape.epsilon)
        self.hidden_norm = RMSNorm(shape.hidden, shape.epsilon)
        self.self_attn = Attention(shape, 2 * shape.hidden)
        self.post_attention_layernorm = RMSNorm(shape.hidden, shape.epsilon)
        self.mlp = MLP(shape)

    def forward(self, embedding: Tensor, hidden: Tensor, rope: Rotary, history: History) -> Tensor:
        """The new residual stream [B, T, hidden]."""
        both = torch.cat((self.input_layernorm(embedding), self.hidden_norm(hidden)), dim=-1)
        x = hidden + chain_attention(self.self_attn, both, rope, history)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Eagle3(nn.Module):
    """One-layer EAGLE-3 head; proposes among `tokens`, the target ids in its draft vocabulary (ascending)."""

    def __init__(self, shape: Shape, tokens: Tensor) -> None:
        super().__init__()
        self.shape = shape
        self.fc = nn.Linear(len(AUX_LAYERS) * shape.hidden, shape.hidden, bias=False)
        self.midlayer = MidLayer(shape)
        self.norm = RMSNorm(shape.hidden, shape.epsilon)
        self.lm_head = nn.Linear(shape.hidden, len(tokens), bias=False)
        self.register_buffer("tokens", tokens, persistent=False)
        self.tokens: Tensor

    def start(self, streams: list[Tensor]) -> Tensor:
        """What takes the hidden state's place in step 0."""
        out: Tensor = self.fc(torch.cat([streams[i] for i in AUX_LAYERS], dim=-1))
        return out

    def step(
        self, embedding: Tensor, hidden: Tensor, rope: Rotary, history: History
    ) -> tuple[Tensor, Tensor]:
        """(logits over the draft vocabulary, hidden state for the next step)."""
        stream = self.midlayer(embedding, hidden, rope, history)
        return self.lm_head(self.norm(stream)), stream


class MTP(nn.Module):
    """MiMo's multi-token-prediction layer; the target's embedding and output matrices serve it."""

    def __init__(self, shape: Shape, output: Tensor) -> None:
        super().__init__()
        self.shape = shape
        self.token_layernorm = RMSNorm(shape.hidden, shape.epsilon)
        self.hidden_layernorm = RMSNorm(shape.hidden, shape.epsilon)
        self.input_proj = nn.Linear(2 * shape.hidden, shape.hidden, bias=False)
        self.input_layernorm = RMSNorm(shape.hidden, shape.epsilon)
        self.self_attn = Attention(shape, shape.hidden)
        self.post_attention_layernorm = RMSNorm(shape.hidden, shape.epsilon)
        self.mlp = MLP(shape)
        self.final_layernorm = RMSNorm(shape.hidden, shape.epsilon)
        self.register_buffer("output", output, persistent=False)
        self.output: Tensor
        self.register_buffer("tokens", torch.arange(shape.vocabulary), persistent=False)
        self.tokens: Tensor

    def start(self, streams: list[Tensor]) -> Tensor:
        """The last pre-norm stream: MiMo's model class applies the final norm in the output layer."""
        return streams[-1]

    def step(
        self, embedding: Tensor, hidden: Tensor, rope: Rotary, history: History
    ) -> tuple[Tensor, Tensor]:
        """(logits, hidden state for the next step); the embedding at position 0 is zero, as in the engine."""
        embedding = torch.cat((torch.zeros_like(embedding[:, :1]), embedding[:, 1:]), dim=1)
        x = self.input_proj(
            torch.cat((self.hidden_layernorm(hidden), self.token_layernorm(embedding)), dim=-1)
        )
        x = x + chain_attention(self.self_attn, self.input_layernorm(x), rope, history)
        x = x + self.mlp(self.post_attention_layernorm(x))
        out = self.final_layernorm(x)
        return F.linear(out, self.output), out


Draft = Eagle3 | MTP


def initialise(draft: Draft) -> None:
    """Normal weights, standard deviation 0.02, as in the target."""
    for parameter in draft.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.02)


def chain(draft: Draft, target: Target, ids: Tensor, streams: list[Tensor], steps: int) -> list[Tensor]:
    """Logits [B, T - 1, draft vocabulary] of each step; row q of step j proposes the token at q + 2.

    Rows q < j of step j belong to no chain.
    """
    embedding = target.model.embed_tokens(ids[:, 1:])
    rope = rotary(draft.shape, torch.arange(ids.shape[1] - 1))
    hidden = draft.start([stream[:, :-1] for stream in streams])
    history = History([], [])
    proposals = []
    for step in range(steps):
        if step:
            hidden = hidden.roll(1, dims=1)
        logits, hidden = draft.step(embedding, hidden, rope, history)
        proposals.append(logits)
    return proposals
