"""U-Nets: outputs that move exactly with the image, maps of the right sizes, and a receptive field that is what it says."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gcsa.export import export
from gcsa.models.create import create_model
from gcsa.models.folding import FoldedHead, fold
from gcsa.models.unet import Encoder, Level, UNet
from gcsa.testing import assert_equivariant, randomize
from tests.errors import not_equivariant, raises

ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "two stages": ("gcsa_pyramid_tiny", dict(fields=(2, 4), depths=(1, 1), num_heads=(1, 2), radii=(1, "all"))),
    "three stages": (
        "gcsa_pyramid_tiny",
        dict(fields=(2, 3, 4), depths=(1, 1, 1), num_heads=(1, 1, 2), radii=(2, 1, 1)),
    ),
    "isotropic": ("gcsa_tiny", dict(fields=4, depth=1)),
    "of convolutions": ("gcsa_hybrid_tiny", dict(fields=4, conv_depth=1)),
    "no attention": ("gcnn_tiny", dict(fields=4, depth=1)),
    "scalar fields": ("gcsa_pooled_small", dict(fields=4, scalar_fields=8, depth=1, stem_fields=(3, 2))),
}
RAYS = 8
GENERATORS = (1, 7)
"""Of d4: a rotation and a reflection."""
NARROW: dict[str, Any] = dict(fields=(2, 2), depths=(1, 1), num_heads=(1, 1), radii=(1, 1), layer_scale=0)


def encoder(kind: str, group: str) -> Any:
    name, options = ENCODERS[kind]
    return create_model(name, num_classes=0, in_chans=3, **{"group": group, **options})


def unet(kind: str, group: str, **options: Any) -> UNet:
    """A network without zeros and ones that would hide a broken layer, nor a factor of 1e-4 in front of its attention."""
    made = UNet(encoder(kind, group), 2, RAYS, **options)
    for name, parameter in made.named_parameters():
        if name.endswith(("scale1.gamma", "scale2.gamma")):
            nn.init.ones_(parameter)
    return randomize(made)  # type: ignore[return-value]


def image(network: UNet, positions: int = 2) -> Tensor:
    side = max(32, positions * network.size_divisor)
    return torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(1))


class Both(nn.Module):
    """Images to scalars and rays, the former as as many more rays that are all alike: one run for both kinds."""

    def __init__(self, network: UNet) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        out = self.network(x)
        scalars = [scalar[:, None].expand(-1, RAYS, -1, -1) for scalar in out[:, :2].unbind(1)]
        return torch.cat([*scalars, out[:, 2:]], 0)


@pytest.mark.parametrize(
    ("kind", "group"),
    [*((kind, group) for kind in ENCODERS for group in ("c4", "d4")), ("three stages", "c8"), ("isotropic", "d2")],
)
def test_scalars_move_and_rays_turn(kind: str, group: str) -> None:
    """Every exact element, in train and eval mode, in both precisions."""
    network = unet(kind, group)
    assert_equivariant(Both(network), image(network), group, "image", "rays")
    assert network(image(network))[:, 2:].std(1).mean() > 1e-2, "the directions differ"


@pytest.mark.parametrize("resolution", [1, 3, 64])
@pytest.mark.parametrize("kind", ["three stages", "isotropic", "scalar fields"])
def test_every_resolution(kind: str, resolution: int) -> None:
    network = unet(kind, "d4", resolution=resolution)
    strides = [level.stride for level in network.encoder.levels]
    assert network.stride == min([stride for stride in strides if stride >= resolution], default=network.size_divisor)
    assert network(image(network)).shape == (2, 2 + RAYS, *image(network).shape[2:])
    assert_equivariant(Both(network), image(network), "d4", "image", "rays", GENERATORS, [torch.float64])


@pytest.mark.parametrize("group", ["c1", "c4"])
def test_images_that_are_not_square(group: str) -> None:
    network = unet("three stages", group)
    x = torch.randn(1, 3, 32, 64)
    assert network(x).shape == (1, 2 + RAYS, 32, 64)
    if group == "c4":
        assert_equivariant(Both(network), x, group, "image", "rays", dtypes=[torch.float64])


def test_a_deep_decoder_of_other_widths() -> None:
    network = unet("three stages", "d4", decoder_fields=[3, 5, 2], decoder_depth=2)
    assert [len(blocks) for blocks in network.decoder.blocks] == [2, 2, 2]  # type: ignore[arg-type]
    assert_equivariant(Both(network), image(network), "d4", "image", "rays", GENERATORS, [torch.float64])


def test_masks_have_no_rays() -> None:
    network = randomize(UNet(encoder("two stages", "d4"), 3))
    assert network(torch.randn(1, 3, 32, 32)).shape == (1, 3, 32, 32)
    assert_equivariant(network, torch.randn(1, 3, 32, 32), "d4", "image", "image", GENERATORS)


@pytest.mark.parametrize("part", ["stem", "stage", "fusion", "block", "head", "rays", "enlarging"])
def test_one_broken_layer_is_found(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: whatever layer prefers a direction, the outputs show it."""
    network: Any = unet("three stages", "d4").double()  # first: a wider type fills the tables anew
    stages = network.encoder.stages
    convs = {
        "stem": network.encoder.stem.convs[0],
        "stage": next(layer for layer in stages[1].modules() if getattr(layer, "kernel_size", 0) == 3),
        "block": network.decoder.blocks[1][0].conv1,
    }
    if part in convs:
        convs[part].tables[1] *= 1.5
    elif part in ("fusion", "head"):  # 1 x 1: one element of the group that is not as the others
        layer = network.decoder.fusions[0].norm if part == "fusion" else network.head.norm
        layer.register_forward_hook(lambda _, __, out: torch.cat([1.5 * out[:, :, :, :1], out[:, :, :, 1:]], 3))
    elif part == "rays":
        places = network.head.ray_output._places
        places[0], places[1] = places[1], places[0]
    else:
        monkeypatch.setattr("gcsa.layers.upsample.upsample", lambda x, scale: x.repeat(1, 2, 2, 1, 1).roll(1, 1))
    with not_equivariant():
        assert_equivariant(Both(network), image(network), "d4", "image", "rays", GENERATORS, [torch.float64])


def test_levels_of_a_pyramid() -> None:
    made = Encoder(encoder("three stages", "d4"))
    assert made.levels == [Level(1, 2), Level(2, 4), Level(3, 8), Level(4, 16)]
    maps = made(torch.randn(1, 3, 32, 48))
    assert [tuple(x.shape) for x in maps] == [(1, 32 // s, 48 // s, 8, c) for c, s in ((1, 2), (2, 4), (3, 8), (4, 16))]


@pytest.mark.parametrize(
    ("options", "levels"),
    [
        (dict(stem_strides=(2, 2, 2), stem_separable=True, stem_fields=(3, 5)), [(3, 2), (5, 4), (4, 8)]),
        (dict(stem_strides=(2, 3, 2), stem_separable=True), [(2, 2), (2, 6), (4, 12)]),
        (dict(stem_strides=(1, 2, 1, 2)), [(2, 1), (2, 2), (2, 2), (4, 4)]),
        (dict(stem_strides=(4,)), [(4, 4)]),
    ],
)
def test_levels_of_stems(options: dict[str, Any], levels: list[tuple[int, int]]) -> None:
    """Each convolution of the stem gives one, with the stride up to it, and all blocks at one stride give one."""
    model = create_model("gcsa_tiny", num_classes=0, in_chans=3, group="c4", fields=4, depth=2, **options)
    made = Encoder(model)
    assert [(level.fields, level.stride) for level in made.levels] == levels
    side = 2 * made.size_divisor
    maps = made(torch.randn(1, 3, side, side))
    assert [(x.shape[4], side // x.shape[1], x.shape[3]) for x in maps] == [(*level, 4) for level in levels]
    x = torch.randn(1, 3, side, side)
    assert torch.equal(made(x)[-1], model.stages(model.stem(x)))


def test_levels_of_scalar_fields() -> None:
    """They are given as regular fields that are constant along the group."""
    made = Encoder(encoder("scalar fields", "d4"))
    assert made.levels == [Level(3, 2), Level(2, 4), Level(8, 8)]
    coarse = made(torch.randn(1, 3, 16, 16))[-1]
    assert coarse.shape == (1, 2, 2, 8, 8)
    assert torch.equal(coarse, coarse[:, :, :, :1].expand_as(coarse))


def test_the_decoder_goes_from_coarse_to_fine() -> None:
    network = unet("three stages", "c4", decoder_fields=[5, 6, 7])
    sizes: list[tuple[int, ...]] = []
    for blocks in network.decoder.blocks:
        blocks.register_forward_hook(lambda _, __, out: sizes.append(tuple(out.shape[1:])))
    network(torch.randn(1, 3, 32, 32))
    assert sizes == [(4, 4, 4, 7), (8, 8, 4, 6), (16, 16, 4, 5)]
    coarse = unet("three stages", "c4", resolution=4)
    assert [len(network.decoder.fusions), len(coarse.decoder.fusions)] == [3, 2]


def test_each_map_of_the_encoder_counts() -> None:
    network = unet("three stages", "c4")
    x = torch.randn(1, 3, 32, 32)
    before = network(x)
    for i in range(len(network.encoder.levels)):
        zeroed = lambda _, __, maps, i=i: [0 * m if j == i else m for j, m in enumerate(maps)]
        hook = network.encoder.register_forward_hook(zeroed)
        assert (network(x) - before).abs().max() > 1e-3
        hook.remove()


def test_rays_begin_at_the_radius_of_a_nucleus() -> None:
    """About ten pixels, whatever the image, and not at zero, where polygons have no area."""
    rays = UNet(encoder("two stages", "d4"), 1, 32)(torch.randn(1, 3, 32, 32))[:, 1:]
    assert 3 < rays.mean() < 30


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: UNet(create_model("resnet18", num_classes=0), 1), "encoder"),
        (lambda: UNet(create_model("gsa_tiny", fields=4, depth=1), 1), "encoder"),
        (
            lambda: UNet(
                create_model("gcsa_pyramid_tiny", feature_maps="invariant", **ENCODERS["two stages"][1], group="c4"), 1
            ),
            "feature_maps",
        ),
        (lambda: UNet(encoder("three stages", "c4"), 1, decoder_fields=[4]), "decoder_fields"),
        (lambda: UNet(encoder("three stages", "c4"), 1, decoder_fields=[4, 4, 4], resolution=4), "decoder_fields"),
        (lambda: UNet(encoder("three stages", "c4"), 1, decoder_fields=[4, 4, 0]), "decoder_fields"),
        (lambda: UNet(encoder("two stages", "c4"), 0), "scalars"),
        (lambda: UNet(encoder("two stages", "c4"), 1, resolution=0), "resolution"),
        (lambda: UNet(encoder("two stages", "c4"), 1, decoder_depth=0), "decoder_depth"),
        (lambda: UNet(encoder("two stages", "d4"), 1, 6), "rays"),
    ],
)
def test_refused(make: Any, key: str) -> None:
    with raises(key) as error:
        make()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("size", [(30, 32), (32, 24), (0, 32)])
def test_sides_that_the_stride_does_not_divide(size: tuple[int, int]) -> None:
    with raises("input.size"):
        unet("three stages", "d4")(torch.zeros(1, 3, *size))


@pytest.mark.parametrize("radii", [(2, 1, 1), (1, 1, 3), (5, 1, 1), ("all", "all", "all")])
def test_the_shortest_side(radii: tuple[Any, ...]) -> None:
    """From `least` on no neighbourhood is larger than its map; below it one is, unless it is `multiple`."""
    options = dict(ENCODERS["three stages"][1], radii=radii, group="c4")
    network = UNet(create_model("gcsa_pyramid_tiny", num_classes=0, in_chans=3, **options), 1)
    assert network.min_size % network.size_divisor == 0
    network(torch.randn(1, 3, network.min_size, network.min_size))
    if network.min_size > network.size_divisor:
        side = network.min_size - network.size_divisor
        with raises("radius.too_large"):
            network(torch.randn(1, 3, side, side))


def reach(network: UNet) -> int:
    """The farthest output pixel that a change of one input pixel changes, tried at each place within a stride."""
    network = randomize(network).double().eval()
    assert network.margin is not None
    side = 2 * (network.margin + network.size_divisor)
    x = torch.randn(1, 3, side, side, dtype=torch.float64)
    farthest = 0
    with torch.no_grad():
        still = network(x)
        for place in range(side // 2, side // 2 + network.size_divisor):
            changed = x.clone()
            changed[0, :, place, place] += 1
            differ = (network(changed) != still)[0].any(0).nonzero()
            farthest = max(farthest, int((differ - place).abs().max()))
    return farthest


@pytest.mark.parametrize(
    ("name", "options", "resolution"),
    [
        ("gcsa_pyramid_tiny", NARROW, 2),
        ("gcsa_pyramid_tiny", dict(NARROW, radii=(2, 1), kernel_size=1, separable=False), 4),
        ("gcsa_pyramid_tiny", dict(NARROW, stem_norm="batch", stem_separable=True, stem_strides=(2, 2, 2)), 8),
        (
            "gcsa_pyramid_tiny",
            dict(NARROW, stem_strides=(4, 4), fields=(2,), depths=(1,), num_heads=(1,), radii=(0,)),
            4,
        ),
        # Strides that are large beside all else: what is added for each has to be right by itself.
        (
            "gcsa_tiny",
            dict(stem_strides=(1, 8), radius=0, kernel_size=1, low_pass=False, fields=2, depth=1, num_heads=1),
            1,
        ),
        ("gcsa_tiny", dict(stem_strides=(2, 9), radius=0, kernel_size=1, fields=2, depth=1, num_heads=1), 2),
        ("gcsa_tiny", dict(stem_strides=(1, 1, 3, 3), radius=0, kernel_size=1, fields=2, depth=1, num_heads=1), 9),
        ("gcsa_tiny", dict(stem_strides=(2, 2), radius=0, kernel_size=1, fields=2, depth=1, num_heads=1), 4),
        ("gcsa_tiny", dict(radius=2, fields=2, depth=1, num_heads=1), 1),
        ("gcsa_hybrid_tiny", dict(radius=1, fields=2, conv_depth=1, num_heads=1), 2),
        ("gcnn_tiny", dict(fields=2, depth=1), 2),
    ],
)
def test_no_pixel_sees_beyond_the_margin(name: str, options: dict[str, Any], resolution: int) -> None:
    """And the margin is no more than that and a few strides."""
    model = create_model(name, num_classes=0, in_chans=3, group="c4", **options)
    network = UNet(model, 1, 4, resolution=resolution)
    seen = reach(network)
    assert network.margin is not None
    assert network.margin % network.size_divisor == 0
    assert seen <= network.margin <= 1.5 * seen + network.size_divisor


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gcsa_pyramid_tiny", dict(NARROW, radii=(1, "all"))),
        ("gcsa_tiny", dict(fields=4, depth=1)),
        ("gcsa_linear_tiny", dict(fields=4, depth=1)),
        ("gcsa_pooled_small", dict(fields=4, scalar_fields=8, depth=1, stem_fields=(4, 4), radius=1, positions=True)),
        ("gcnn_tiny", dict(fields=2, depth=1, padding_mode="circular")),
    ],
)
def test_no_margin_where_everything_is_seen_or_places_count(name: str, options: dict[str, Any]) -> None:
    assert UNet(create_model(name, num_classes=0, in_chans=3, group="c4", **options), 1).margin is None


def test_a_part_of_an_image_says_what_the_whole_says() -> None:
    """Beyond the margin from where it was cut: what tiles are made by."""
    network = randomize(UNet(create_model("gcnn_tiny", num_classes=0, in_chans=3, group="c4", fields=2, depth=1), 1))
    network = network.double().eval()
    margin: int = network.margin  # type: ignore[assignment]
    x = torch.randn(1, 3, 128, 128, dtype=torch.float64)
    whole, part = network(x), network(x[:, :, :96, :96])
    assert torch.allclose(part[:, :, : 96 - margin, : 96 - margin], whole[:, :, : 96 - margin, : 96 - margin])
    assert not torch.allclose(part, whole[:, :, :96, :96])


@pytest.mark.parametrize(("group", "dtype", "tolerance"), [("c4", torch.float64, 1e-10), ("d4", torch.float32, 1e-4)])
def test_folded_network_ends_in_one_convolution(group: str, dtype: torch.dtype, tolerance: float) -> None:
    network = unet("two stages", group).to(dtype).eval()
    x = image(network).to(dtype)
    folded = fold(network)
    with torch.no_grad():
        assert torch.allclose(folded(x), network(x), rtol=0, atol=tolerance)
        assert isinstance(folded.head, FoldedHead)
        assert folded.head.out.weight.shape[0] == 2 + RAYS
        assert_equivariant(Both(folded), x, group, "image", "rays", dtypes=[dtype])
    assert not any(isinstance(module, FoldedHead) for module in fold(network, "direct").modules())
    with raises("folding.twice"):
        fold(folded, "direct")


@pytest.mark.filterwarnings("ignore")  # torch's exporter warns of its own deprecations
def test_onnx_upsamples_by_constant_scales(tmp_path: Path) -> None:
    """With sizes that depend on the image, onnxruntime would leave the layout of its convolutions."""
    onnx = pytest.importorskip("onnx")
    export(unet("two stages", "c4").eval(), tmp_path / "m.onnx", "onnx", (3, 32, 32))
    graph = onnx.load(tmp_path / "m.onnx").graph
    constants = {weight.name for weight in graph.initializer}
    upsampled = [node for node in graph.node if node.op_type == "Resize"]
    assert len(upsampled) > 1
    assert all(len(node.input) == 3 and node.input[2] in constants for node in upsampled)
