"""Convolutions in front of attention: what gcsa_hybrid_tiny, gcsa_hybrid_small and `conv_depth` change."""

from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

from gcsa.layers.blocks import Block, ResidualBlock
from gcsa.models.backbone import Backbone
from gcsa.testing import assert_equivariant, assert_invariant, randomize
from tests.errors import not_equivariant


def network(**options: Any) -> Backbone:
    return randomize(
        timm.create_model("gcsa_hybrid_tiny", **{"fields": 4, "depth": 1, "conv_depth": 2, **options})
    ).eval()


@pytest.mark.parametrize("scalar_fields", [0, 8])
@pytest.mark.parametrize("group", ["c4", "d4"])
def test_invariant_but_with_a_broken_convolution(group: str, scalar_fields: int) -> None:
    """In front of the attention or, with scalar fields, of their pooling: in train and eval mode, float64 and float32."""
    model: Any = network(group=group, scalar_fields=scalar_fields, drop_path_rate=0.1)
    blocks = model.stem.blocks if scalar_fields else model.stages
    assert [type(block) for block in blocks[:2]] == [ResidualBlock, ResidualBlock]
    assert [type(block) for block in model.stages] == [*([] if scalar_fields else [ResidualBlock] * 2), Block]
    x = torch.randn(2, 1, 16, 16)
    assert_invariant(model, x, group)
    blocks[0].conv1.tables[1] *= 1.5
    with not_equivariant():
        assert_invariant(model, x, group)


def test_every_block_is_a_stage() -> None:
    assert [type(stage) for stage in network(conv_depth=0, depth=2).stages] == [Block] * 2
    assert len(network().forward_intermediates(torch.randn(1, 1, 16, 16), intermediates_only=True)) == 3


def test_feature_maps_of_each_resolution() -> None:
    """Those of the stem are regular fields; the last one is scalar, and is the only one of the stages."""

    def features(**options: Any) -> Any:
        small: dict[str, Any] = dict(fields=2, stem_fields=(4, 3), scalar_fields=8, conv_depth=1)
        return randomize(timm.create_model("gcsa_hybrid_small", features_only=True, **small, **options)).eval()

    model, x = features(), torch.randn(1, 3, 48, 32)
    info = model.feature_info
    assert info.module_name() == ["stem.norms.0", "stem.norms.1", "stem.blocks", "stages.0"]
    assert (info.channels(), info.reduction()) == ([4 * 8, 3 * 8, 2 * 8, 8], [2, 4, 8, 8])
    maps = model(x)
    assert [tuple(found.shape) for found in maps] == [
        (1, channels, 48 // stride, 32 // stride)
        for channels, stride in zip(info.channels(), info.reduction(), strict=True)
    ]
    for level, kind in enumerate(("regular", "regular", "regular", "image")):
        one = features(out_indices=(level,))
        one.load_state_dict(model.state_dict(), strict=False)
        assert torch.equal(one(x)[0], maps[level])  # of a network cut behind this level
        assert_equivariant(nn.Sequential(one, Only()), x, "d4", "image", kind, dtypes=[torch.float64])
        assert one.model.size_divisor == info.reduction()[level]


class Only(nn.Module):
    """The tensor in a list of one."""

    def forward(self, maps: list[Tensor]) -> Tensor:
        (only,) = maps
        return only
