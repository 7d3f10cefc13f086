"""Performers, transformers with kernelizable attention, and four ways to tell them where a token stands.

Horn et al., Translational Equivariance in Kernelizable Attention. `performer_horn` has the hyper-parameters of its
appendix A.2 (depth 6, width 256, 8 heads, dropout 0.1, 4 scales, clipping distance 6), with pixels as tokens; that gives
the 4.7M parameters of its Table 1, and 4.5M with `relative_s2`. `performer_tiny` is our reduced size for 28 x 28 on two
cores. Ours, for the document does not say: pre-norm blocks, mean pooling, MLP ratio 4, fixed sinusoids as the absolute
encoding, the number of random features (about D log D, Choromanski et al. 2021) and their redrawing every 1000 steps
(the usual choice of Performer packages).
"""

# Annotations stay objects here (no `from __future__`), because torch.fx copies them into code that TorchScript reads.
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from timm.layers import Mlp
from timm.models import build_model_with_cfg, checkpoint_seq
from torch import Tensor, nn

from gcsa._utils.errors import UserError
from gcsa._utils.options import Count, Options, Range, Rate, Width
from gcsa.layers.blocks import mlp_width
from gcsa.layers.buffers import ComputedBuffers
from gcsa.layers.pooling import check_classes
from gcsa.models.backbone import ImageSize, MlpRatio
from gcsa.models.baselines.kernelizable import (
    KernelizableAttention,
    add_positions,
    geometric_omegas,
    make_attention,
    redraw,
)
from gcsa.models.registry import MODEL_OPTIONS, refuse_features_only

POOLS = ("avg", "")


@dataclass(frozen=True, kw_only=True)
class TokenOptions(Options):
    """Options of the transformers whose tokens are pixels or patches."""

    num_classes: Annotated[int, Range(0, 1_000_000), "classes; 0: none, for features"] = 1000
    in_chans: Annotated[int, Range(1, 1024), "channels of an image"] = 3
    img_size: Annotated[ImageSize | None, "pixels a side; not used, since the model takes any"] = None
    global_pool: Annotated[Literal["avg", ""], "over positions; empty: the unpooled map, without classes"] = "avg"
    patch_size: Annotated[int, Range(1, 1024), "pixels between tokens; 1: every pixel is one"] = 1
    dim: Annotated[Width, "channels"] = 256
    depth: Annotated[Count, "blocks"] = 6
    num_heads: Annotated[Count, "attention heads; must divide dim"] = 8
    drop_rate: Annotated[Rate, "dropout in front of the classifier"] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_classes(self.num_classes, self.global_pool, POOLS)


@dataclass(frozen=True, kw_only=True)
class PerformerOptions(TokenOptions):
    """Options of the Performers."""

    position: Annotated[
        Literal["none", "absolute", "relative_s1", "relative_s2"], "none, absolute, relative_s1 or relative_s2"
    ] = "relative_s1"
    mlp_ratio: Annotated[MlpRatio, "hidden channels of the MLP, as a multiple of dim"] = 4.0
    num_random_features: Annotated[Width, "random features of each attention layer, shared by its heads"] = 128
    redraw_interval: Annotated[
        Annotated[int, Range(0, 1_000_000_000)],
        "training steps after which the random features are drawn anew; 0: never",
    ] = 1000
    width: Annotated[Annotated[int, Range(2, 1024)], "of relative_s1: sines and cosines for each axis; even"] = 8
    clip: Annotated[
        Annotated[int, Range(1, 1024)], "of relative_s2: distance in tokens from which on all are alike"
    ] = 6
    attn_drop_rate: Annotated[Rate, "dropout of attention outputs"] = 0.0
    mlp_drop_rate: Annotated[Rate, "dropout of the MLP's hidden channels"] = 0.0


class TokenClassifier(ComputedBuffers):
    """Image classifier around any sequence-to-sequence network: patch embedding, `blocks`, norm, mean and linear head.

    Tokens are pixels (`patch_size` 1) or patches that overlap: the embedding is a convolution of side 2 p - 1 and
    stride p, so that a shift by one pixel does not cut an object along other seams, and any image size works.

    Attributes:
        num_features, head_hidden_size: channels C in front of the classifier.
    """

    omegas: Tensor
    global_pool: str

    def __init__(self, options: TokenOptions, blocks: nn.Module, absolute: bool) -> None:
        super().__init__()
        dim, in_chans, patch_size = options.dim, options.in_chans, options.patch_size
        if absolute and dim % 4 != 0:
            raise UserError(f"dim must be a multiple of 4 for position=absolute, not {dim}", "dim", dim=dim)
        self.in_chans = in_chans  # where timm looks when it saves a model
        self.num_features = self.head_hidden_size = dim
        self.absolute = absolute
        self.patch_embed = nn.Conv2d(in_chans, dim, 2 * patch_size - 1, patch_size, patch_size - 1)
        self.register_buffer("omegas", torch.empty(dim // 4 if absolute else 1), persistent=False)
        self.init_non_persistent_buffers()
        self.blocks = blocks
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head_drop = nn.Dropout(options.drop_rate)
        self.global_pool = options.global_pool
        self.reset_classifier(options.num_classes)

    def init_non_persistent_buffers(self) -> None:
        """Fills the scales of the absolute encoding."""
        with torch.no_grad():
            self.omegas.copy_(geometric_omegas(2 * len(self.omegas)))

    def embed(self, x: Tensor) -> Tensor:
        """Images (B, in_chans, H, W) to tokens (B, h, w, C), with the absolute encoding where there is one."""
        x = self.patch_embed(x).permute(0, 2, 3, 1)
        return add_positions(x, self.omegas) if self.absolute else x

    def forward_features(self, x: Tensor) -> Tensor:
        """Images (B, in_chans, H, W) to unpooled features (B, C, H / p, W / p), rounded up."""
        return self.norm(self.blocks(self.embed(x))).permute(0, 3, 1, 2)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Features (B, C, h, w) to logits (B, num_classes), or to (B, C) with `pre_logits`."""
        if self.global_pool == "avg":
            x = x.mean((2, 3))
        x = self.head_drop(x)
        return x if pre_logits else self.head(x)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, in_chans, H, W) to logits (B, num_classes)."""
        return self.forward_head(self.forward_features(x))

    @torch.jit.ignore
    def get_classifier(self) -> nn.Module:
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """A fresh classifier (0 classes: none), and another pooling ("avg", or "" for the unpooled map and no classes).

        Raises ValueError for another pooling and for the unpooled map together with classes.
        """
        pool = self.global_pool if global_pool is None else global_pool
        check_classes(num_classes, pool, POOLS)
        self.num_classes, self.global_pool = num_classes, pool
        self.head = nn.Linear(self.num_features, num_classes) if num_classes > 0 else nn.Identity()
        self.head.to(self.norm.weight)

    @torch.jit.ignore
    def set_grad_checkpointing(self, enable: bool = True) -> None:
        if enable:
            raise UserError(
                f"{type(self).__name__} has no gradient checkpointing: leave it off", "gradient_checkpointing"
            )

    @torch.jit.ignore
    def no_weight_decay(self) -> set[str]:
        return set()

    @torch.jit.ignore
    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        return dict(stem=r"^patch_embed", blocks=[(r"^blocks\D*(\d+)", None), (r"^norm", (99999,))])


class PerformerBlock(nn.Module):
    """x + attention(norm(x)), then x + MLP(norm(x)), on (B, H, W, C), with dropout after each sum over tokens."""

    def __init__(self, dim: int, attn: KernelizableAttention, hidden: int, attn_drop: float, mlp_drop: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = attn
        self.attn_drop = nn.Dropout(attn_drop)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = Mlp(dim, hidden, drop=(mlp_drop, 0.0))

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, C) to the same shape."""
        x = x + self.attn_drop(self.attn(self.norm1(x)))
        return x + self.mlp(self.norm2(x))


class Performer(TokenClassifier):
    """Performer with a positional strategy; see `kernelizable.py`. `options` are those of `PerformerOptions`.

    Random features are never drawn anew in eval mode; exported and scripted copies keep theirs. `attn_drop_rate` drops
    attention outputs, because a kernelized attention has no matrix to drop from.

    Raises:
        UserError: an impossible value, an odd width, heads that do not divide dim, dim that is no multiple of 4 with
            `absolute`.
    """

    steps: Tensor

    def __init__(self, **options: Any) -> None:
        o = PerformerOptions(**options)
        hidden = mlp_width(o.dim, o.mlp_ratio, "channels")
        own = {"relative_s1": dict(width=o.width), "relative_s2": dict(clip=o.clip)}.get(o.position, {})

        def make_block() -> PerformerBlock:
            attn = make_attention(o.position, o.dim, o.num_heads, num_random_features=o.num_random_features, **own)
            return PerformerBlock(o.dim, attn, hidden, o.attn_drop_rate, o.mlp_drop_rate)

        super().__init__(o, nn.Sequential(*(make_block() for _ in range(o.depth))), o.position == "absolute")
        self.redraw_interval = o.redraw_interval
        self.grad_checkpointing = False
        # Counted in the state, so that a resumed run redraws at the steps, and the values, of a whole one.
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    @torch.jit.ignore
    def count_step(self) -> None:
        """Counts a training step; after each `redraw_interval` of them, all layers draw new random features.

        It stands in front of the blocks, not in them, because checkpointing runs those twice.
        """
        if self.redraw_interval > 0:
            self.steps += 1
            layers = [module for module in self.modules() if isinstance(module, KernelizableAttention)]
            projections = redraw([layer.projection for layer in layers], self.steps, self.redraw_interval)
            for layer, projection in zip(layers, projections, strict=True):
                layer.projection = projection

    def forward_features(self, x: Tensor) -> Tensor:
        """Images (B, in_chans, H, W) to unpooled features (B, C, H / p, W / p), rounded up."""
        if self.training and not torch.jit.is_scripting():
            self.count_step()
        x = self.embed(x)
        if self.grad_checkpointing and not torch.jit.is_scripting():
            x = checkpoint_seq(self.blocks, x)
        else:
            x = self.blocks(x)
        return self.norm(x).permute(0, 3, 1, 2)

    @torch.jit.ignore
    def set_grad_checkpointing(self, enable: bool = True) -> None:
        self.grad_checkpointing = enable

    @torch.jit.ignore
    def no_weight_decay(self) -> set[str]:
        """The scales, turns and distances, which mean something by their values."""
        ends = (".omegas", ".alpha", ".beta", ".attn.w")
        return {name for name, _ in self.named_parameters() if name.endswith(ends)}


SIZES: dict[str, dict[str, Any]] = {
    "performer_tiny": dict(patch_size=2, dim=48, depth=3, num_heads=2, mlp_ratio=2, num_random_features=48),
    "performer_horn": dict(
        dim=256, depth=6, num_heads=8, num_random_features=128, attn_drop_rate=0.1, mlp_drop_rate=0.1
    ),
}

MODEL_OPTIONS.update(dict.fromkeys(SIZES, PerformerOptions))


def _create(name: str, pretrained: bool, kwargs: dict[str, Any]) -> Performer:
    refuse_features_only(name, kwargs)
    return build_model_with_cfg(Performer, name, pretrained, **{**SIZES[name], **kwargs})


def performer_tiny(pretrained: bool = False, **kwargs: Any) -> Performer:
    """Performer for 28 x 28 images."""
    return _create("performer_tiny", pretrained, kwargs)


def performer_horn(pretrained: bool = False, **kwargs: Any) -> Performer:
    """The document's Performer, of 4.7M parameters."""
    return _create("performer_horn", pretrained, kwargs)
