"""Pyramids as encoders of other libraries: the maps of feature_maps="invariant" are plain scalar channels."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.models.detection import RetinaNet
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.ops import FeaturePyramidNetwork, masks_to_boxes
from torchvision.transforms.functional import to_tensor

from gcsa.models.create import create_model
from gcsa.testing import assert_equivariant, equivariance_error, randomize
from tests.errors import not_equivariant, raises

NUCLEI = Path(os.environ.get("GCSA_DATA", "data")) / "nuclei" / "train"
SMALL: dict[str, Any] = dict(depths=(1, 1, 1, 1), fields=(4, 8, 8, 12), num_heads=(1, 1, 2, 2))


def features(feature_maps: str = "invariant", **options: Any) -> nn.Module:
    arguments = {**SMALL, **options}
    return randomize(
        timm.create_model("gcsa_pyramid_tiny", features_only=True, feature_maps=feature_maps, **arguments)
    ).eval()


class Level(nn.Module):
    """The only map of an encoder."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor) -> Tensor:
        (found,) = self.encoder(x)
        return found


class TestMaps:
    @pytest.mark.parametrize(("group", "level"), [("c4", 0), ("c8", 1), ("d4", 2), ("d4", 3)])
    def test_scalar_fields(self, group: str, level: int) -> None:
        """In train and eval mode, float64 and float32; and the regular maps are none."""
        x = torch.randn(1, 3, 64, 64)
        of_level = dict(group=group, out_indices=(level,))  # timm prunes the stages behind it
        encoder = Level(features(**of_level))
        assert len(encoder.encoder.model.stages) == level + 1
        assert_equivariant(encoder, x, group, "image", "image")
        with not_equivariant():
            assert_equivariant(Level(features("regular", **of_level)), x, group, "image", "image")

    def test_largest_of_the_group(self) -> None:
        """Of the same weights, and what classifies is the same."""
        model, plain = (
            timm.create_model("gcsa_pyramid_tiny", feature_maps=kind, num_classes=3, group="d4", **SMALL).eval()
            for kind in ("invariant", "regular")
        )
        plain.load_state_dict(model.state_dict())
        x = torch.randn(2, 3, 64, 64)
        assert torch.equal(model(x), plain(x))
        for norm in (False, True):
            (final, maps), (same, regular) = (m.forward_intermediates(x, norm=norm) for m in (model, plain))
            assert torch.equal(final, same)
            for found, fields in zip(maps, regular, strict=True):
                assert torch.equal(found, fields.unflatten(1, (8, -1)).amax(1))

    @pytest.mark.parametrize("name", timm.list_models("gcsa_pyramid_*"))
    def test_channels_are_those_of_feature_info(self, name: str) -> None:
        model = timm.create_model(name, features_only=True, feature_maps="invariant", device="meta")
        assert model.feature_info.reduction() == [4, 8, 16, 32]
        regular = timm.create_model(name, features_only=True, device="meta").feature_info.channels()
        order = model.model.group.order
        assert [order * channels for channels in model.feature_info.channels()] == regular
        maps = model(torch.empty(1, 3, 224, 224, device="meta"))
        expected = [
            (1, c, 224 // r, 224 // r) for c, r in zip(model.feature_info.channels(), (4, 8, 16, 32), strict=True)
        ]
        assert [tuple(found.shape) for found in maps] == expected

    @pytest.mark.parametrize("kind", ["invariant", "regular"])
    def test_the_norm_stays_where_it_fits(self, kind: str) -> None:
        """Whatever channels the maps have."""
        model = timm.create_model("gcsa_pyramid_tiny", feature_maps=kind, **SMALL)
        model.prune_intermediate_layers([3])
        assert not isinstance(model.norm, nn.Identity)
        model.prune_intermediate_layers([2])
        assert isinstance(model.norm, nn.Identity)

    @pytest.mark.filterwarnings("ignore")  # torch compiles with warnings of its own
    def test_one_graph(self) -> None:
        encoder = features(depths=(1, 1), fields=(4, 8), num_heads=(1, 1), radii=(1, "all"))
        x = torch.randn(2, 3, 32, 32)
        expected = encoder(x)
        torch.compiler.reset()
        for run in (
            torch.compile(encoder, backend="eager", fullgraph=True),
            torch.export.export(encoder, (x,)).module(),
        ):
            assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(run(x), expected, strict=True))

    @pytest.mark.parametrize(
        ("options", "key"),
        [
            (dict(feature_maps="scalar"), "feature_maps"),
            (dict(feature_maps="invariant", features_only=True, feature_cls="fx"), "feature_cls"),
        ],
    )
    def test_wrong_options(self, options: dict[str, Any], key: str) -> None:
        with raises(key):
            timm.create_model("gcsa_pyramid_tiny", **options)

    def test_options(self) -> None:
        model = create_model("gcsa_pyramid_tiny", feature_maps="invariant", output_stride=32, **SMALL)
        assert model.feature_maps == "invariant"


class TestSegmentationModels:
    """segmentation_models_pytorch hands options that it does not know to timm."""

    def network(self, name: str, feature_maps: str = "invariant") -> nn.Module:
        smp = pytest.importorskip("segmentation_models_pytorch")
        options = dict(encoder_weights=None, in_channels=3, classes=2, feature_maps=feature_maps)
        return randomize(getattr(smp, name)("tu-gcsa_pyramid_tiny", **options, **SMALL)).eval()

    def test_levels(self) -> None:
        """Of our strides, behind the image and a map without channels at stride 2."""
        network, x = self.network("Unet"), torch.randn(1, 3, 64, 96)
        shapes = [tuple(found.shape) for found in network.encoder(x)]
        assert shapes == [
            (1, 3, 64, 96),
            (1, 0, 32, 48),
            (1, 4, 16, 24),
            (1, 8, 8, 12),
            (1, 8, 4, 6),
            (1, 12, 2, 3),
        ]
        assert network.encoder.out_channels == [shape[1] for shape in shapes]
        assert network(x).shape == (1, 2, 64, 96)

    def test_segformer_is_equivariant(self) -> None:
        """For its decoder is linear in the channels and bilinear in space."""
        x = torch.randn(2, 3, 64, 64)
        assert_equivariant(self.network("Segformer"), x, "c4", "image", "image")
        with not_equivariant():
            assert_equivariant(self.network("Segformer", "regular"), x, "c4", "image", "image")

    def test_a_unet_is_as_equivariant_as_its_filters(self) -> None:
        """Its 3 x 3 filters have no symmetry of their own; with one, only regular maps move the output."""
        x = torch.randn(2, 3, 64, 64, dtype=torch.float64)
        errors = {}
        for kind in ("invariant", "regular"):
            network = self.network("Unet", kind).double()
            errors[kind, "plain"] = equivariance_error(network, x, "c4", 1, "image", "image")
            with torch.no_grad():
                for module in (*network.decoder.modules(), *network.segmentation_head.modules()):
                    if isinstance(module, nn.Conv2d):
                        module.weight.copy_(sum(module.weight.rot90(k, (2, 3)) for k in range(4)) / 4)
            errors[kind, "symmetric"] = equivariance_error(network, x, "c4", 1, "image", "image")
        assert errors.pop(("invariant", "symmetric")) < 1e-12
        assert min(errors.values()) > 0.01

    @pytest.mark.parametrize("name", ["DeepLabV3", "DeepLabV3Plus"])
    def test_output_stride(self, name: str) -> None:
        with raises("output_stride") as error:
            self.network(name)
        assert "\n" not in str(error.value)


class Neck(nn.Module):
    """A backbone as torchvision's detectors take it: an encoder and an FPN on its maps."""

    def __init__(self, encoder: nn.Module, out_channels: int = 16) -> None:
        super().__init__()
        self.encoder, self.out_channels = encoder, out_channels
        self.fpn = FeaturePyramidNetwork(encoder.feature_info.channels(), out_channels)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return self.fpn({str(i): found for i, found in enumerate(self.encoder(x))})


def nuclei(count: int) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    """Images of 256 x 256 and the boxes of their label maps, all of class 1."""
    images, targets = [], []
    for file in sorted((NUCLEI / "images").glob("*.png")):
        labels = torch.from_numpy(np.array(Image.open(NUCLEI / "masks" / file.name)).astype(np.int64))
        if labels.shape != (256, 256) or not labels.any():
            continue
        boxes = masks_to_boxes(labels == labels.unique()[1:, None, None])
        boxes[:, 2:] += 1  # to the far side of the last pixel
        images.append(to_tensor(Image.open(file).convert("RGB")))
        targets.append(dict(boxes=boxes, labels=torch.ones(len(boxes), dtype=torch.int64)))
        if len(images) == count:
            break
    return images, targets


class TestTorchvision:
    @pytest.mark.skipif(not NUCLEI.is_dir(), reason="GCSA_DATA has no nuclei")
    def test_a_detector_trains(self) -> None:
        images, targets = nuclei(2)
        anchors = AnchorGenerator(((8,), (16,), (32,), (64,)), ((0.5, 1.0, 2.0),) * 4)
        network = RetinaNet(Neck(features()), num_classes=2, anchor_generator=anchors, min_size=256).train()
        optimizer = torch.optim.SGD(network.parameters(), 0.01)
        losses = network(images, targets)
        assert losses.keys() == {"classification", "bbox_regression"}
        sum(losses.values()).backward()
        model = network.backbone.encoder.model
        trained = [*model.stem.parameters(), *model.stages.parameters()]
        assert all(p.grad is not None and p.grad.any() for p in trained)
        optimizer.step()
        assert sum(network(images, targets).values()) < sum(losses.values())
        found, _ = network.eval()(images)
        assert found.keys() == {"boxes", "labels", "scores"}
