"""A Llama of 2 million parameters, with parameter names as in a Hugging Face checkpoint."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Rotary = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Shape:
    """Sizes shared by the target and its drafts."""

    vocabulary: int = 512
    hidden: int = 192
    layers: int = 4
    heads: int = 6
    mlp: int = 512
    rope_base: float = 50_000.0  # not the usual 10,000: an engine that ignores it draws other hidden states
    epsilon: float = 1e-5
    positions: int = 2048


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last dimension."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as `x`."""
        return F.rms_norm(x, self.weight.shape, self.weight, self.epsilon)


def rotary(shape: Shape, positions: Tensor) -> Rotary:
    """cos and sin [T, head size] for the given positions [T], halves layout as in Llama."""
    size = shape.hidden // shape.heads
    inverse = shape.rope_base ** (-torch.arange(0, size, 2, dtype=torch.float32) / size)
    angles = torch.outer(positions.float(), inverse).repeat(1, 2)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, rope: Rotary) -> Tensor:
    """Rotary embedding of x [..., T, head size]."""
    first, second = x.chunk(2, dim=-1)
    return x * rope[0] + torch.cat((-second, first), dim=-1) * rope[1]


class Attention(nn.Module):
    """Causal attention; `inputs` is the width of what q, k and v read (2 × hidden in an EAGLE-3 head)."""

    def __init__(self, shape: Shape, inputs: int, bias: bool = False) -> None:
        super().__init__()
        self.heads = shape.heads
        self.q_proj = nn.Linear(inputs, shape.hidden, bias=bias)
        self.k_proj = nn.Linear(inputs, shape.hidden, bias=bias)
        self.v_proj = nn.Linear(inputs, shape.hidden, bias=bias)
        self.o_proj = nn.Linear(shape.hidden, shape.hidden, bias=False)

    def split(self, x: Tensor) -> Tensor:
        """[B, T, hidden] -> [B, heads, T, head size]."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def project(self, x: Tensor, rope: Rotary) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries and keys, and values, [B, heads, T, head size]."""
        q, k, v = (self.split(layer(x)) for layer in (self.q_proj, self.k_proj, self.v_proj))
        return rotate(q, rope), rotate(k, rope), v

    def join(self, x: Tensor) -> Tensor:
        """[B, heads, T, head size] -> output projection [B, T, hidden]."""
        joined: Tensor = self.o_proj(x.transpose(1, 2).flatten(2))
        return joined

    def forward(self, x: Tensor, rope: Rotary) -> Tensor:
        """[B, T, inputs] -> [B, T, hidden]."""
        q, k, v = self.project(x, rope)
        return self.join(F.scaled_dot_product_attention(q, k, v, is_causal=True))


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.mlp, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.mlp, bias=False)
        self.down_proj = nn.Linear(shape.mlp, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as `x`."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """Pre-norm transformer layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape.hidden, shape.epsilon)
        self.self_attn = Attention(shape, shape.hidden)
        self.post_attention_layernorm = RMSNorm(shape.hidden, shape.epsilon)
        self.mlp = MLP(shape)

    def forward(self, x: Tensor, rope: Rotary) -> Tensor:
        """Residual stream in, residual stream out."""
        x = x + self.self_attn(self.input_layernorm(x), rope)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Backbone(nn.Module):
    """Embedding, layers, final norm; the `model.` part of a checkpoint."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.hidden, shape.epsilon)


class Target(nn.Module):
    """The language model."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Backbone(shape)
        self.lm_head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def streams(self, ids: Tensor) -> list[Tensor]:
        """The residual stream [B, T, hidden] before layer 0, 1, … and, last, after the last layer (pre-norm).

        Index i is what vLLM calls auxiliary hidden state i.
        """
        rope = rotary(self.shape, torch.arange(ids.shape[1]))
        x = self.model.embed_tokens(ids)
        streams = [x]
        for layer in self.model.layers:
            x = layer(x, rope)
            streams.append(x)
        return streams

    def logits(self, stream: Tensor) -> Tensor:
        """Logits of a pre-norm stream."""
        out: Tensor = self.lm_head(self.model.norm(stream))
        return out

    @torch.no_grad()
    def greedy(self, prompts: list[list[int]], limit: int, end: int) -> list[list[int]]:
        """Greedy continuations without a cache; for spot checks on prompts of similar length.

        Args:
            prompts: token ids; the rows are padded right, and each row writes over its own padding.
            limit: most tokens to generate for each prompt.
            end: the id after which a row is finished (kept in the result).
        """
        lengths = torch.tensor([len(ids) for ids in prompts])
        ids = torch.zeros((len(prompts), int(lengths.max()) + limit), dtype=torch.long)
        for row, tokens in enumerate(prompts):
            ids[row, : len(tokens)] = torch.tensor(tokens)
        done = torch.zeros(len(prompts), dtype=torch.bool)
        stops = lengths.clone()
        rows = torch.arange(len(prompts))
        for _ in range(limit):
            width = int(stops.max())
            last = self.streams(ids[:, :width])[-1][rows, stops - 1]
            token = self.logits(last).argmax(-1)
            ids[rows, stops] = torch.where(done, ids[rows, stops], token)
            stops = stops + (~done).long()
            done |= token == end
            if bool(done.all()):
                break
        return [ids[row, len(tokens) : int(stops[row])].tolist() for row, tokens in enumerate(prompts)]
