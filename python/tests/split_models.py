"""Whole models, as people have them: to be cut into stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

WIDTH = 16
SYMBOLS = 13
LENGTH = 6


class Norm(nn.Module):
    """Divides rows by their root mean square."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class Rotary(nn.Module):
    """Cosines and sines of positions, from a buffer that is not saved."""

    frequencies: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequencies", 10000.0 ** -torch.arange(0, 1, 2 / WIDTH), persistent=False)

    @torch.no_grad()
    def forward(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        angles = positions[:, None].to(x.dtype) * self.frequencies.to(x.dtype)
        angles = torch.cat([angles, angles], -1)
        return angles.cos(), angles.sin()


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin


class DecoderLayer(nn.Module):
    """Attention with rotated positions and a gated feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(), Norm()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.gate_proj, self.up_proj = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        *,
        position_embeddings: tuple[Tensor, Tensor],
        use_cache: bool = False,
    ) -> Tensor:
        x = self.input_layernorm(hidden_states)
        query, key = (_rotated(one(x), *position_embeddings) for one in (self.q_proj, self.k_proj))
        scores = query @ key.transpose(1, 2) / WIDTH**0.5
        if attention_mask is not None:
            scores = scores.masked_fill(~attention_mask, -1e9)
        x = hidden_states + self.o_proj(scores.softmax(-1) @ self.v_proj(x))
        y = self.post_attention_layernorm(x)
        found: Tensor = x + self.down_proj(nn.functional.silu(self.gate_proj(y)) * self.up_proj(y))
        return found


class Decoder(nn.Module):
    """Tokens to states: `layers` is the list of blocks."""

    def __init__(self, n_layers: int) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(SYMBOLS, WIDTH)
        self.layers = nn.ModuleList(DecoderLayer() for _ in range(n_layers))
        self.norm = Norm()
        self.rotary_emb = Rotary()

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        hidden: Tensor = self.embed_tokens(input_ids)
        length = input_ids.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool).tril()[None]
        if attention_mask is not None:
            mask = mask & attention_mask.bool()[:, None, :]
        positions = self.rotary_emb(hidden, torch.arange(length))
        for layer in self.layers:
            hidden = layer(hidden, attention_mask=mask, position_embeddings=positions, use_cache=False)
        found: Tensor = self.norm(hidden)
        return found


@dataclass
class Config:
    """What Hugging Face's models have beside their weights."""

    use_cache: bool = True


class Llama(nn.Module):
    """The structure of Hugging Face's `LlamaForCausalLM`, with tied embeddings."""

    def __init__(self, n_layers: int = 8, ties: bool = True) -> None:
        super().__init__()
        self.config = Config()
        self.model = Decoder(n_layers)
        self.lm_head = nn.Linear(WIDTH, SYMBOLS, bias=False)
        if ties:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Any]:
        return {"logits": self.lm_head(self.model(input_ids, attention_mask)), "past_key_values": None}


class Residual(nn.Module):
    """Two convolutions with norms, and a skip around them."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, out, 3, padding=1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, padding=1, bias=False), nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None if width == out else nn.Conv2d(width, out, 1)

    def forward(self, x: Tensor) -> Tensor:
        skip = x if self.downsample is None else self.downsample(x)
        found = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        found += skip
        last: Tensor = self.relu(found)
        return last


class ResNet(nn.Module):
    """The structure of torchvision's ResNets."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1, self.relu = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True)
        self.layer1 = nn.Sequential(Residual(4, 4), Residual(4, 4))
        self.layer2 = nn.Sequential(Residual(4, 6), Residual(6, 6))
        self.layer3 = nn.Sequential(Residual(6, 8), Residual(8, 8))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer1(self.relu(self.bn1(self.conv1(x))))
        found: Tensor = self.fc(torch.flatten(self.avgpool(self.layer3(self.layer2(x))), 1))
        return found


class Skipping(nn.Module):
    """A skip around most of the model: what it adds at the end was made at the beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, SYMBOLS)
        self.left, self.right = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        skip = torch.tanh(self.first(x))
        y = torch.tanh(self.left(skip))
        y = torch.tanh(self.right(y)) * y
        found: Tensor = self.last(y + skip)
        return found


class InPlace(nn.Module):
    """A block that adds to what it gets, and calls that do so between modules."""

    class Block(nn.Module):
        """Adds to its input."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            x += torch.tanh(self.inner(x.clone()))
            return x

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(InPlace.Block() for _ in range(3))
        self.relu = nn.ReLU(inplace=True)
        self.last = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x) * 1.5
        kept = x * 2
        for block in self.blocks:
            x = block(x)
        kept *= 0.5
        found: Tensor = self.last(self.relu(x) + kept)
        return found
