from typing import Any

import pytest
import torch
from torch import nn

from gcsa.groups import group
from gcsa.layers.blocks import Block, FieldMlp, ResidualBlock
from gcsa.layers.layout import from_nchw, to_nchw
from gcsa.layers.pooling import GroupPooling
from gcsa.layers.stem import Downsample, LowPass, Stem
from gcsa.testing import assert_equivariant, randomize
from tests.errors import not_equivariant, raises

GROUPS = ("c4", "c6", "c8", "d1", "d4")
REGULARISED: list[dict[str, Any]] = [
    {},
    dict(drop_path=0.5),
    dict(proj_drop=0.5),
    dict(drop_path=0.3, proj_drop=0.3, layer_scale=0.1, mlp_ratio=1.5, attention="group", separable=True),
]


@pytest.mark.parametrize("options", REGULARISED)
@pytest.mark.parametrize("name", GROUPS)
def test_block_is_equivariant(name: str, options: dict[str, Any]) -> None:
    h = group(name)
    assert_equivariant(randomize(Block(4, 2, h, **options)), torch.randn(4, 5, 4, h.order, 4), name)


@pytest.mark.parametrize("name", GROUPS)
def test_other_layers_are_equivariant(name: str) -> None:
    h = group(name)
    assert_equivariant(randomize(FieldMlp(4, 6, h, drop=0.5)), torch.randn(2, 3, 4, h.order, 4), name)
    assert_equivariant(randomize(Downsample(4, 6, h)), torch.randn(2, 6, 4, h.order, 4), name)
    residual = ResidualBlock(4, h, drop_path=0.3, proj_drop=0.3)
    assert_equivariant(randomize(residual), torch.randn(4, 5, 4, h.order, 4), name)


@pytest.mark.parametrize("padding_mode", ["zeros", "circular"])
@pytest.mark.parametrize(("strides", "size"), [((1,), (5, 6)), ((1, 2), (6, 6)), ((3,), (6, 9)), ((4, 2), (8, 16))])
@pytest.mark.parametrize("name", GROUPS)
def test_stem_is_equivariant(name: str, strides: tuple[int, ...], size: tuple[int, int], padding_mode: str) -> None:
    stem = randomize(Stem(2, 4, group(name), strides, padding_mode))
    assert_equivariant(stem, torch.randn(2, 2, *size), name, input="image")


@pytest.mark.parametrize(
    "options",
    [
        dict(norm="batch"),
        dict(low_pass=False),
        dict(widths=(3,)),
        dict(strides=(1, 2, 2), widths=(5, 3), separable=True),
        dict(positions=True),
    ],
)
@pytest.mark.parametrize("name", GROUPS)
def test_other_stems_are_equivariant(name: str, options: dict[str, Any]) -> None:
    stem = randomize(Stem(2, 4, group(name), **{"strides": (2, 2), **options}))
    assert_equivariant(stem, torch.randn(2, 2, 8, 4), name, input="image")


def test_broken_blocks_are_found() -> None:
    h = group("c4")
    block, residual, mlp = Block(4, 2, h), ResidualBlock(4, h), FieldMlp(4, 6, h)
    stem, down = Stem(2, 4, h, (1, 2)), Downsample(4, 6, h)
    block.drop_path = nn.Dropout(0.5)
    mlp.fc1.index[2] = mlp.fc1.index[2].roll(1)
    stem.convs[1].tables[3, 0, 0] += 0.1
    down.conv.tables[3, 0, 0] += 0.1
    residual.conv2.tables[3, 0, 0] += 0.1
    for module in (block, residual, mlp, stem, down):
        kind = "image" if module is stem else "field"
        x = torch.randn(2, 2, 4, 4) if kind == "image" else torch.randn(2, 4, 4, 4, 4)
        with not_equivariant():
            assert_equivariant(module, x, h, input=kind)


def test_low_pass_takes_away_what_a_stride_would_alias() -> None:
    rows = torch.arange(6)
    stripes = ((-1.0) ** rows).reshape(1, 6, 1, 1, 1).expand(2, 6, 6, 4, 3)  # the highest frequency of the grid
    assert LowPass("circular")(stripes).abs().max() < 1e-6
    assert LowPass()(stripes)[:, 1:-1].abs().max() < 1e-6
    assert torch.allclose(LowPass("circular")(torch.ones(2, 6, 5, 4, 3)), torch.ones(2, 6, 5, 4, 3))


def test_drop_path_drops_samples() -> None:
    block = Block(4, 2, group("c4"), drop_path=0.5)
    x = torch.randn(32, 2, 2, 4, 4)
    kept = (block(x) == x).flatten(1).all(1)
    assert 0 < kept.sum() < 32


def test_layer_scale_is_the_size_of_the_branches() -> None:
    x = torch.randn(2, 4, 4, 8, 4)
    assert torch.allclose(Block(4, 2, group("c8"), layer_scale=1e-6)(x), x, atol=1e-4)
    assert not torch.allclose(Block(4, 2, group("c8"))(x), x, atol=1e-1)


@pytest.mark.parametrize("stride", [1, 2, 3, 4, 5, 6])
def test_stem_takes_every_size_that_its_stride_divides(stride: int) -> None:
    stem = Stem(1, 2, group("c4"), (stride,))
    for size in (stride, 2 * stride, 7 * stride):
        assert stem(torch.randn(1, 1, size, size)).shape[1:3] == (size // stride, size // stride)


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (dict(layer_scale=-1.0), "layer_scale"),
        (dict(layer_scale=float("nan")), "layer_scale"),
        (dict(layer_scale="big"), "layer_scale"),
        (dict(mlp_ratio=0), "mlp_ratio"),
        (dict(mlp_ratio=-2), "mlp_ratio"),
        (dict(mlp_ratio=0.1), "mlp_ratio"),
        (dict(drop_path=1.0), "drop_path"),
        (dict(fields=2.0), "fields"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], key: str) -> None:
    with raises(key):
        Block(**{"fields": 4, "num_heads": 2, "group": group("c4"), **arguments})


@pytest.mark.parametrize("layer_scale", [0, 0.0, None])
def test_no_layer_scale(layer_scale: float | None) -> None:
    block = Block(4, 2, group("c4"), layer_scale=layer_scale)
    assert isinstance(block.scale1, nn.Identity)
    assert isinstance(block.scale2, nn.Identity)


class Pooled(nn.Module):
    """A `GroupPooling` as NCHW users see it, and without its maximum where `broken`."""

    def __init__(self, name: str, broken: bool = False) -> None:
        super().__init__()
        self.pool, self.broken = randomize(GroupPooling(5, 3, group(name))), broken

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = from_nchw(x, self.pool.expand.group.order)
        return to_nchw(self.pool.expand(x)[:, :, :, :1] if self.broken else self.pool(x))


@pytest.mark.parametrize("name", ["c4", "c8", "d4"])
def test_group_pooling_makes_scalar_fields(name: str) -> None:
    x = torch.randn(2, 5 * group(name).order, 4, 5)
    assert Pooled(name)(x).shape == (2, 3, 4, 5)
    assert_equivariant(Pooled(name), x, name, "regular", "image")
    with not_equivariant():
        assert_equivariant(Pooled(name, broken=True), x, name, "regular", "image")
