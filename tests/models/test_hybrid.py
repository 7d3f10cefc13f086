"""Convolutions in front of attention: what gcsa_hybrid_tiny, gcsa_hybrid_small and `conv_depth` change."""

from typing import Any

import pytest
import timm
import torch

from gcsa.layers.blocks import Block, ResidualBlock
from gcsa.models.backbone import Backbone
from gcsa.testing import assert_invariant, randomize


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
    with pytest.raises(AssertionError, match="not equivariant"):
        assert_invariant(model, x, group)


def test_every_block_is_a_stage() -> None:
    assert [type(stage) for stage in network(conv_depth=0, depth=2).stages] == [Block] * 2
    assert len(network().forward_intermediates(torch.randn(1, 1, 16, 16), intermediates_only=True)) == 3
