"""The C16 network of Weiler & Cesa 2019 (arXiv:1911.08251) for rotated MNIST, and their recipe:

    python train.py imports=[benchmarks.learning.e2cnn] model=timm model.name=e2cnn data=rotmnist data.train_on_val=true \\
        data.batch_size=64 data.augment.degrees=180 optimizer.opt=adam optimizer.lr=0.015 optimizer.weight_decay=0 \\
        optimizer/schedule=exponential task.label_smoothing=0 callbacks=no_ema trainer.max_epochs=40

Six group convolutions with batch norm and ELU, max-pooling behind the second and fourth, the maximum over the group, then over
positions, and three linear layers with dropout. It shows how far the images of rotated MNIST can be told apart at all. With
`+model.width=0.58` it has 0.91M parameters, and 40 epochs take 5 minutes on an H100 that it shares (benchmarks/results/ceiling).
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from torch import Tensor, nn

from gcsa.groups import group as make_group
from gcsa.layers import SteerableConv2d
from gcsa.layers.layout import from_nchw, to_nchw
from gcsa.layers.norm import FieldBatchNorm
from gcsa.models import register_options

KERNELS = (9, 7, 7, 7, 7, 5)
FIELDS = (24, 32, 36, 36, 64, 96)
POOLED = (1, 3)
"""The layers with a 2 x 2 max-pooling behind them."""


class E2CNN(nn.Module):
    """`width` times the fields of the paper, over any `group`."""

    def __init__(
        self, num_classes: int = 10, in_chans: int = 1, group: str = "c16", width: float = 1.0, drop_rate: float = 0.3
    ) -> None:
        super().__init__()
        fields = [max(1, round(width * count)) for count in FIELDS]
        self.in_chans, self.num_classes, self.num_features = in_chans, num_classes, fields[-1]
        self.group = make_group(group)
        sources = [in_chans, *fields[:-1]]
        self.convs = nn.ModuleList(
            SteerableConv2d(
                source,
                target,
                kernel,
                self.group,
                lift=layer == 0,
                padding=0 if layer == len(KERNELS) - 1 else None,
                bias=False,
            )
            for layer, (source, target, kernel) in enumerate(zip(sources, fields, KERNELS, strict=True))
        )
        self.norms = nn.ModuleList(FieldBatchNorm(count, self.group.order) for count in fields)
        hidden = [
            layer
            for _ in range(2)
            for layer in (
                nn.Dropout(drop_rate),
                nn.Linear(self.num_features, self.num_features),
                nn.BatchNorm1d(self.num_features),
                nn.ELU(),
            )
        ]
        self.hidden = nn.Sequential(*hidden, nn.Dropout(drop_rate))
        self.classifier = nn.Linear(self.num_features, num_classes)

    def forward_features(self, images: Tensor) -> Tensor:
        """Images (B, C, 28, 28) to feature maps (B, 3, 3, N, C)."""
        x = images
        for layer, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            x = F.elu(norm(conv(x)))
            if layer in POOLED:
                x = from_nchw(F.max_pool2d(to_nchw(x), 2), self.group.order)
        return x

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Feature maps (B, H, W, N, C) to logits (B, num_classes), or to invariant features (B, C)."""
        x = x.amax(3).amax((1, 2))
        return x if pre_logits else self.classifier(self.hidden(x))

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, C, 28, 28) to logits (B, num_classes)."""
        return self.forward_head(self.forward_features(images))


default_cfgs = generate_default_cfgs({"e2cnn": {"input_size": (1, 28, 28)}})


@register_model
def e2cnn(pretrained: bool = False, **kwargs: Any) -> E2CNN:
    """The network for rotated MNIST."""
    return build_model_with_cfg(E2CNN, "e2cnn", pretrained, **kwargs)


register_options("e2cnn", group=str, width=float)
