"""Any network made exact: by its mean over the poses of an image, and by a pose that the image's content chooses."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import timm
import torch
from torch import Tensor, nn

from gcsa import group
from gcsa.actions import act, transform_array
from gcsa.groups import Group
from gcsa.images.resampling import resampled
from gcsa.images.windows import ArrayImage
from gcsa.models.pose import LearnedPose
from gcsa.symmetry import KINDS, Averaged, Canonical, RotationAveraged, canonical_pose, moments
from gcsa.testing import assert_equivariant, equivariance_error, randomize
from tests.errors import raises


def picture(height: int, width: int, dtype: Any, seed: int = 0) -> Any:
    """Noise (H, W, 3), whose moments do not tie."""
    return (255 * np.random.default_rng(seed).random((height, width, 3))).astype(dtype)


WRAPPERS = [Averaged, Canonical]
SMALL = ["resnet10t", "mobilenetv3_small_050", "vit_tiny_patch16_224"]
MANY = [
    "resnet18", "resnet26d", "seresnet33ts", "resnext50_32x4d", "regnetx_002", "regnety_002", "densenet121", "vgg11",
    "mobilenetv2_050", "mobilenetv4_conv_small", "efficientnet_b0", "tf_efficientnet_lite0", "ghostnet_050", "mnasnet_small",
    "convnext_atto", "convnextv2_atto", "edgenext_xx_small", "mobilevit_xxs", "repvgg_a0", "rexnet_100", "dla34", "hrnet_w18_small",
    "poolformer_s12", "resmlp_12_224", "mixer_s32_224", "deit_tiny_patch16_224", "cait_xxs24_224", "swin_tiny_patch4_window7_224",
    "xcit_nano_12_p16_224", "efficientformerv2_s0",
]  # fmt: skip
ONE_SIZE = ("vit", "deit", "cait", "swin", "mixer", "resmlp", "xcit", "efficientformer")
"""Names of networks that are made for one size of images."""
MULTIPLES = ("dla", "hrnet")
"""Names of networks that take no odd sizes."""


def network(name: str, side: int = 96) -> nn.Module:
    """A network of timm with random weights, statistics and biases, so that none of its parts is the identity."""
    torch.manual_seed(0)
    size = {"img_size": side} if name.startswith(ONE_SIZE) else {}
    made = timm.create_model(name, num_classes=3, **size).eval()
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.1, 0.1)
    return made


class Local(nn.Module):
    """A network that sees directions and places: maps (B, 8, H, W) that a rotated image changes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.conv = nn.Conv2d(2, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.linspace(-1, 1, x.shape[2], dtype=x.dtype, device=x.device)[:, None]
        return torch.relu(self.conv(x) + rows)


class Pooled(Local):
    """The same to scores (B, 8)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).mean((2, 3))


class Scaled(nn.Module):
    """Bytes to 0..1."""

    def forward(self, x: Tensor) -> Tensor:
        return x.float() / 255


def images(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("name", SMALL)
def test_networks_of_timm(name, wrapper):
    side = 65 if name == "resnet10t" else 64
    plain = network(name, side)
    x = images(2, 3, side, side)
    assert equivariance_error(plain.double(), x, "d4", 1, "image", "invariant") > 1e-3
    tested = [1, 6] if wrapper is Averaged else range(1, 8)  # 16 passes each
    assert_equivariant(wrapper(plain, "d4").eval(), x, "d4", "image", "invariant", elements=tested)


@pytest.mark.slow  # 30 architectures, each at two sizes, in all poses: minutes
@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("name", MANY)
def test_many_networks_of_timm(name, wrapper):
    for side in (96,) if name.startswith(ONE_SIZE + MULTIPLES) else (96, 97):
        wrapped = wrapper(network(name, side), "d4").eval()
        x = images(1, 3, side, side)
        with torch.no_grad():
            for dtype, most in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
                made, given = wrapped.to(dtype), x.to(dtype)
                errors = [equivariance_error(made, given, "d4", g, "image", "invariant") for g in range(1, 8)]
                assert max(errors) <= most, (side, dtype, errors)


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("shape", [(8, 8), (7, 7), (6, 9)])
@pytest.mark.parametrize(("output", "kind"), [("map", "image"), ("vectors", "vector"), ("rays", "rays")])
@pytest.mark.parametrize("name", ["c4", "d2", "d4"])
def test_maps_of_every_kind(name, output, kind, shape, wrapper):
    x = images(3, 2, *shape)
    assert equivariance_error(Local().double(), x, name, 1, "image", kind) > 1e-3
    assert_equivariant(wrapper(Local(), name, output=output), x, name, "image", kind)


def test_a_function_says_how_an_output_of_ones_own_rotates():
    """A column of the map's means by quarter: its four values rotate with the image."""

    def quarters(y: Tensor, group: Group, g: int) -> Tensor:
        return group.act_on_grid(y.unflatten(1, (2, 2)), g).flatten(1)

    class Quarters(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.adaptive_avg_pool2d(Local().to(x)(x).mean(1), 2).flatten(1)

    x = images(2, 2, 8, 8)
    for wrapper in WRAPPERS:
        wrapped = wrapper(Quarters(), "d4", output=quarters)
        for g in range(1, 8):
            expected = quarters(wrapped(x), group("d4"), g)
            torch.testing.assert_close(wrapped(group("d4").act_on_grid(x, g)), expected)


def test_the_mean_is_the_mean_over_the_poses():
    x, plain = images(2, 2, 6, 9), Local().double()
    d4 = group("d4")
    poses = [d4.act_on_grid(plain(d4.act_on_grid(x, k)), int(d4.inverse[k])) for k in range(8)]
    torch.testing.assert_close(Averaged(plain, "d4", output="map")(x), torch.stack(poses).mean(0))


def test_the_chosen_pose_is_one_pass():
    class Counting(nn.Module):
        seen = 0

        def forward(self, x: Tensor) -> Tensor:
            self.seen += len(x)
            return x.flatten(1)[:, :3]

    counting = Counting()
    Canonical(counting, "d4")(images(5, 3, 8, 8))
    assert counting.seen == 5
    Canonical(counting, "d4", top=3)(images(5, 3, 8, 8))
    assert counting.seen == 5 + 15
    Averaged(counting, "d4")(images(5, 3, 8, 8))
    assert counting.seen == 5 + 15 + 40


@pytest.mark.parametrize("top", [2, 5, 8])
def test_the_best_poses_share_the_output(top):
    assert_equivariant(Canonical(Local(), "d4", output="map", top=top), images(3, 2, 6, 9), "d4", "image", "image")


class FirstOfTied(Canonical):
    """A rule that the order of the elements decides."""

    def weights(self, x: Tensor) -> Tensor:
        return nn.functional.one_hot(moments(x, self.group).argmax(1), self.group.order).to(x.dtype)


def symmetric_images() -> Tensor:
    """A constant image, one that a rotation by 180 degrees leaves as it is, and one that a diagonal reflection does."""
    x = images(3, 2, 7, 7)
    x[0] = 1.0
    x[1] = x[1] + x[1].rot90(2, (1, 2))
    x[2] = x[2] + x[2].transpose(1, 2)
    return x


def test_poses_that_tie_share_the_output():
    x = symmetric_images()
    assert_equivariant(Canonical(Local(), "d4", output="map"), x, "d4", "image", "image")
    with pytest.raises(AssertionError):
        assert_equivariant(FirstOfTied(Local(), "d4", output="map"), x, "d4", "image", "image")


@pytest.mark.parametrize("size", [1, 1000])
def test_learned_poses_that_tie_share_the_output(size):
    """Whatever the size of the scores, whose rounding grows with them."""
    chooser = randomize(LearnedPose(2, "d4")).eval()
    with torch.no_grad():
        chooser.scores.weight.mul_(size)
    x = images(2, 2, 48, 48).float()
    x = torch.stack([group("d4").act_on_grid(x, g) for g in range(8)]).mean(0)
    wrapped = Canonical(Local(), "d4", chooser, "map")
    assert (wrapped.weights(x) > 0).all()
    assert_equivariant(wrapped.float(), x, "d4", "image", "image", dtypes=[torch.float32])


def test_autocast_leaves_the_chooser_alone():
    wrapped, x = Canonical(Local(), "d4", randomize(LearnedPose(2, "d4"))).eval(), images(8, 2, 32, 32).float()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(wrapped.weights(x), wrapped.weights(x))
        for g in range(8):
            moved = wrapped.weights(group("d4").act_on_grid(x, g))
            assert torch.equal(moved, wrapped.weights(x)[:, [int(group("d4").cayley[k, g]) for k in range(8)]])


def test_whole_numbers_come_out_as_their_mean():
    class Counts(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x > 0).sum((1, 2, 3))

    flat = torch.ones(1, 2, 6, 6)
    for wrapped in (Averaged(Counts(), "d4"), Canonical(Counts(), "d4")):
        assert wrapped(flat).item() == 72


def test_a_chooser_that_looks_at_places_alone_is_not_exact():
    def upright(x: Tensor, group: Group) -> Tensor:
        return -torch.arange(group.order, dtype=x.dtype).expand(len(x), -1)

    with pytest.raises(AssertionError):
        assert_equivariant(Canonical(Local(), "d4", upright, "map"), images(2, 2, 8, 8), "d4", "image", "image")


def test_scores_of_moments_are_a_regular_field():
    """s_k(g x) = s_{k g}(x), what `Canonical` asks of a chooser."""
    d4, x = group("d4"), images(3, 2, 6, 9)
    scores = moments(x, d4)
    for g in range(8):
        torch.testing.assert_close(moments(d4.act_on_grid(x, g), d4), scores[:, d4.cayley[:, g]])
    assert scores.abs().max() <= 1


def test_several_outputs():
    class Several(nn.Module):
        def forward(self, x: Tensor) -> dict[str, object]:
            y = Local().to(x)(x)
            return {"scores": y.mean((2, 3)), "more": (y.amax((2, 3)), [y.amin((2, 3))])}

    x = images(4, 2, 6, 9)
    for wrapper in WRAPPERS:
        whole, parts = wrapper(Several(), "d4")(x), wrapper(Several(), "d4", batch=3)(x)
        rotated = wrapper(Several(), "d4")(x.rot90(1, (2, 3)))
        for other in (parts, rotated):
            torch.testing.assert_close(other, whole)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_training(wrapper):
    wrapped = wrapper(Local(), "d4", output="map").train()
    wrapped(images(2, 2, 8, 8).float()).square().mean().backward()
    assert wrapped.network.conv.weight.grad.abs().sum() > 0
    assert set(wrapped.state_dict()) == {"network.conv.weight", "network.conv.bias"}


def test_timms_interface():
    wrapped = Averaged(network("resnet10t"), "d4")
    assert wrapped.num_features == 512
    assert wrapped.pretrained_cfg["architecture"] == "resnet10t"
    wrapped.reset_classifier(5)
    assert wrapped.num_classes == 5
    assert wrapped(torch.zeros(1, 3, 64, 64)).shape == (1, 5)
    with pytest.raises(AttributeError):  # the network's own would not be exact
        wrapped.forward_features  # noqa: B018
    assert "group=d4, output=scores, exact under rotations by 90 degrees and reflections" in repr(wrapped)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_copies(wrapper):
    wrapped, x = wrapper(Local(), "d4", output="map"), images(2, 2, 6, 9).float()
    for other in (copy.deepcopy(wrapped), pickle.loads(pickle.dumps(wrapped))):
        torch.testing.assert_close(other(x), wrapped(x), rtol=0, atol=0)


@pytest.mark.parametrize(
    "wrapped",
    [
        Averaged(Local(), "d4", "map"),
        Averaged(Pooled(), "d4"),
        Canonical(Local(), "d4", output="map"),
        Canonical(Pooled(), "d4", randomize(LearnedPose(2, "d4"))),
    ],
    ids=lambda wrapped: f"{type(wrapped).__name__}, {wrapped.output}",
)
def test_export_with_any_number_of_images(wrapped, tmp_path):
    x, batch, d4 = images(5, 2, 32, 32).float(), torch.export.Dim("batch", min=1, max=64), group("d4")
    program = torch.export.export(wrapped.eval(), (x[:2],), dynamic_shapes=({0: batch},))
    torch.testing.assert_close(program.module()(x), wrapped(x))
    torch.onnx.export(program, f=tmp_path / "net.onnx", dynamo=True, verbose=False)
    session = pytest.importorskip("onnxruntime").InferenceSession(tmp_path / "net.onnx")
    (given,) = session.get_inputs()
    answers = [
        torch.from_numpy(session.run(None, {given.name: d4.act_on_grid(x, g).contiguous().numpy()})[0])
        for g in range(d4.order)
    ]
    torch.testing.assert_close(answers[0], wrapped(x), rtol=1e-4, atol=1e-5)
    for g, answer in enumerate(answers):
        torch.testing.assert_close(answer, act(answers[0], d4, g, KINDS[wrapped.output]), rtol=1e-5, atol=1e-6)


def test_export_of_what_has_no_fixed_graph():
    for wrapped, side in (
        (Canonical(Local(), "d4", output="map", top=2), 8),
        (Canonical(Local(), "d4", output="map"), 9),
    ):
        with pytest.raises(Exception, match="is exported"):
            torch.export.export(wrapped.eval(), (torch.zeros(1, 2, 8, side),))


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize(("network", "output"), [(Local(), "scores"), (nn.Flatten(), "map"), (nn.Flatten(), "vectors")])
def test_an_output_that_is_not_what_it_is_called(network, output, wrapper):
    """It would be averaged over places that do not belong together, without an error."""
    with raises("network.outputs"):
        wrapper(network.double(), "d4", output=output)(images(2, 2, 8, 8))


def test_whole_numbers_are_images_too():
    x = (100 * images(3, 2, 8, 8)).abs().byte()
    scaled = nn.Sequential(Scaled(), Local())
    for wrapped in (Averaged(scaled, "d4", "map"), Canonical(scaled, "d4", output="map", top=3)):
        torch.testing.assert_close(wrapped(x.rot90(1, (2, 3))), wrapped(x).rot90(1, (2, 3)))


@pytest.mark.parametrize("name", ["c2", "c4", "d1", "d4"])
@pytest.mark.parametrize("shape", [(96, 96), (97, 97), (60, 91)])
def test_learned_scores_are_a_regular_field(name, shape):
    chooser, x, of = randomize(LearnedPose(2, name)).double().eval(), images(2, 2, *shape), group(name)
    scores = chooser(x, of)
    assert scores.std(1).min() > 1e-4, "not one score for all"
    for g in range(of.order):
        moved = chooser(of.act_on_grid(x, g), of)
        torch.testing.assert_close(
            moved, scores[:, [int(of.cayley[k, g]) for k in range(of.order)]], rtol=0, atol=1e-12
        )
        assert not g or (moved - scores).abs().max() > 1e-4, "negative control"
    with raises("chooser.group"):
        chooser(x, group("d2"))


def test_a_chooser_learns():
    class Learned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x: Tensor, group: Group) -> Tensor:
            return self.scale * moments(x, group).float()

    wrapped = Canonical(Local(), "d4", Learned(), "map", top=2)
    wrapped(images(2, 2, 8, 8).float()).square().mean().backward()
    assert wrapped.chooser.scale.grad != 0


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: Averaged(Local(), "c8"), "symmetry.off_grid"),
        (lambda: Averaged(Local(), "d3"), "symmetry.off_grid"),
        (lambda: Averaged(Local(), "d4", output="mask"), "symmetry.output"),
        (lambda: Averaged(Local(), "d4", batch=0), "batch"),
        (lambda: Canonical(Local(), "c4", top=5), "top"),
        (lambda: Averaged(Local(), "d4")(torch.zeros(2, 8, 8)), "input.shape"),
        (lambda: Canonical(Local(), "d4")(torch.zeros(0, 2, 8, 8)), "input.shape"),
        (lambda: Canonical(Local(), "d4", lambda x, g: x.mean((2, 3)))(torch.zeros(1, 2, 8, 8)), "chooser.scores"),
    ],
)  # fmt: skip
def test_wrong_values(make, key):
    with raises(key):
        make()


class TestRotationAveraged:
    """The mean over angles between, of a network that is exact on the grid."""

    @pytest.mark.parametrize("shape", [(2, 2, 16, 16), (2, 2, 15, 15)])
    @pytest.mark.parametrize(("name", "rotations"), [("c2", 6), ("c4", 8), ("d4", 16)])
    def test_it_stays_exact(self, name: str, rotations: int, shape: tuple[int, ...]) -> None:
        x = images(*shape)
        wrapped = RotationAveraged(Averaged(Pooled(), name), name, rotations)
        assert_equivariant(wrapped, x, name, "image", "invariant")
        alone = RotationAveraged(Pooled().double(), name, rotations)  # a network that is not exact stays so
        assert equivariance_error(alone, x, name, 1, "image", "invariant") > 1e-4

    def test_between_the_poses_it_is_the_mean(self) -> None:
        x, within = images(2, 2, 16, 16), Averaged(Pooled().double(), "d4")
        expected = (within(x) + within(resampled(x, 45))) / 2
        torch.testing.assert_close(RotationAveraged(within, "d4", 8)(x), expected, rtol=0, atol=1e-12)
        assert "mean at 0, 45 degrees" in repr(RotationAveraged(within, "d4", 8))

    def test_it_is_steadier_at_45_degrees(self) -> None:
        """A smooth image, so that little is lost by resampling, seen by a network that is not invariant there."""
        y, x = torch.meshgrid(*[torch.linspace(-2, 2, 32, dtype=torch.float64)] * 2, indexing="ij")
        image = torch.stack([x * torch.exp(-x * x - y * y), y * torch.exp(-2 * x * x - y * y)])[None]
        within = Averaged(Pooled().double(), "d4")

        def moved(network: nn.Module) -> float:
            return float((network(resampled(image, 45)) - network(image)).detach().abs().max())

        assert moved(RotationAveraged(within, "d4", 8)) < 0.5 * moved(within)

    @pytest.mark.parametrize(
        ("name", "rotations", "key"),
        [
            ("c1", 8, "rotations.not_exact"),
            ("d1", 8, "rotations.not_exact"),
            ("d4", 4, "rotations.multiple"),
            ("d4", 6, "rotations.multiple"),
        ],
    )
    def test_what_it_refuses(self, name: str, rotations: int, key: str) -> None:
        with raises(key):
            RotationAveraged(Pooled(), name, rotations)

    def test_oblong_images_are_refused(self) -> None:
        with raises("rotations.square"):
            RotationAveraged(Averaged(Pooled(), "d4"), "d4", 8)(images(1, 2, 12, 17))

    def test_a_classifier_of_timm_keeps_its_interface(self) -> None:
        wrapped = RotationAveraged(Averaged(network("resnet10t"), "d4"), "d4", 8)
        assert wrapped.num_features == 512
        assert wrapped.num_classes == 3
        x = images(1, 3, 64, 64).float()
        torch.testing.assert_close(pickle.loads(pickle.dumps(wrapped))(x), wrapped(x))


@pytest.mark.parametrize("name", ["c1", "c2", "c4", "c8", "d1", "d2", "d4", "d8"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_all_poses_end_in_one(name: str, dtype: Any) -> None:
    h, image = group(name), picture(12, 17, dtype)
    ends = set()
    for g in h.exact_elements:
        transformed = transform_array(image, h, g)
        ends.add(transform_array(transformed, h, canonical_pose(ArrayImage(transformed), h)).tobytes())
    assert len(ends) == 1


@pytest.mark.parametrize("name", ["c2", "c4", "d1", "d2", "d4"])
def test_tensors_and_windows_have_one_canonical_pose(name: str) -> None:
    h = group(name)
    for seed in range(5):
        image = picture(300, 290, np.uint8, seed)  # read in two strips
        scores = moments(torch.from_numpy(image).permute(2, 0, 1)[None], h)
        assert canonical_pose(ArrayImage(image), h) == int(scores.argmax())
    assert {canonical_pose(ArrayImage(transform_array(image, h, g)), h) for g in range(h.order)} == set(range(h.order))
