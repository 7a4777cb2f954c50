"""A vision transformer as a user would bring it: ViT-S/16 is width 384, depth 12, 6 heads."""

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """Attention and a two-layer perceptron, each normalised first; (N, tokens, width) -> same."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count, tokens, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(count, tokens, 3, self.heads, width // self.heads)
        attended = F.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4).unbind())
        x = x + self.out(attended.transpose(1, 2).reshape(count, tokens, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class VisionTransformer(nn.Module):
    """Images (N, 3, image, image) -> logits (N, classes)."""

    def __init__(
        self,
        image: int = 224,
        patch: int = 16,
        width: int = 384,
        depth: int = 12,
        heads: int = 6,
        classes: int = 1000,
    ):
        super().__init__()
        tokens = (image // patch) ** 2 + 1
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, tokens, width))
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.classifier = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.classifier(self.norm(self.blocks(x))[:, 0])
