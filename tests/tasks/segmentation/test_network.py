"""The network of a segmenter: equivariant for images of any size, and the same after it was written and read."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gcsa
from gcsa import weights as checkpoints
from gcsa.actions import act, transform_array
from gcsa.groups import group
from gcsa.tasks.segmentation import SegmentationPredictor, Segmenter, tiles
from gcsa.tasks.segmentation.network import SEGMENTERS
from gcsa.testing import assert_equivariant, randomize, relative_error
from tests.errors import not_equivariant, raises
from tests.tasks.segmentation.networks import TINY, picture, untrained, whole_maps

SIZELESS = dict.fromkeys(("fields", "depths", "num_heads", "radii", "stem_fields"))
"""Options of another encoder than a pyramid: its own."""
D4 = group("d4")


def error(network: Segmenter, image: np.ndarray) -> float:
    """The largest relative error of the maps over all eight poses of an image."""
    upright, errors = whole_maps(network, image)[None], []
    for g in D4.exact_elements:
        maps = whole_maps(network, transform_array(image, D4, g))[None]
        errors.append(relative_error(maps[:, :1], act(upright[:, :1], D4, g, "image")))
        errors.append(relative_error(maps[:, 1:], act(upright[:, 1:], D4, g, "rays")))
    return max(errors)


@pytest.mark.parametrize("in_chans", [1, 3])
@pytest.mark.parametrize("size", [(1, 1), (1, 30), (3, 5), (7, 8), (8, 8), (13, 16), (33, 40), (31, 17)], ids=str)
def test_maps_of_any_size_are_equivariant(size: tuple[int, int], in_chans: int) -> None:
    """Sides smaller than `size_divisor`, which is 8, and sides that lack an odd number of pixels."""
    network, image = untrained(in_chans=in_chans).network, picture(*size, in_chans)
    assert whole_maps(network, image).shape == (9, *size)
    assert error(network, image) < 1e-10


@pytest.mark.parametrize("size", [(8, 8), (9, 10), (24, 26)], ids=str)
def test_images_smaller_than_a_neighbourhood(size: tuple[int, int]) -> None:
    """The coarsest map would have one or two positions, with a radius of 4."""
    network = untrained(radii=[1, 4]).network
    assert (network.size_divisor, network.min_size) == (8, 32)
    assert error(network, picture(*size)) < 1e-10


@pytest.mark.parametrize("placement", [0, -1])
def test_one_placement_of_an_odd_size_prefers_a_side(placement: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control of the mean over both placements."""
    both = tiles.placements
    monkeypatch.setattr(tiles, "placements", lambda *sides: [both(*sides)[placement]])
    assert error(untrained().network, picture(13, 16)) > 1e-3
    assert error(untrained().network, picture(14, 16)) < 1e-10


@pytest.mark.parametrize("name", SEGMENTERS)
def test_every_registered_segmenter(name: str) -> None:
    """With the registered depth and width. The plain network is the negative control."""
    network = Segmenter(name, output="classes", num_classes=3, in_chans=1)
    for key, parameter in network.named_parameters():
        if key.endswith(("scale1.gamma", "scale2.gamma")):
            torch.nn.init.ones_(parameter)
    randomize(network)
    if name.startswith("gcsa"):
        x = torch.randn(1, 1, network.min_size, network.min_size)
        assert network.group == D4
        assert_equivariant(network, x, "d4", "image", "image", elements=[1, 4], dtypes=[torch.float64])
    else:
        assert network.group == group("c1")
        with not_equivariant():
            assert_equivariant(network.eval(), torch.randn(2, 1, 64, 64), "d4", "image", "image", elements=[1])


def as_checkpoint(predictor: SegmentationPredictor, path: Path, **changed: Any) -> Path:
    """The .ckpt that train.py writes of a segmenter."""
    network = predictor.network
    tensors = {f"model.{name}": tensor for name, tensor in network.state_dict().items()}
    model = {"name": network.name, **predictor.options, **changed}
    hyper = {"task": "segmentation", "model": model, "optimizer": {}, "schedule": {}, "adapter": None}
    torch.save({"state_dict": tensors, "hyper_parameters": hyper}, path)
    return path


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gcsa_unet_tiny", {}),
        ("gcsa_unet_tiny", dict(output="classes", num_classes=5, in_chans=1, decoder_fields=[3, 5], decoder_depth=2)),
        (
            "gcsa_unet_tiny",
            dict(pmin=2, pmax=98.5, prob_thresh=0.25, nms_thresh=0.1, resolution=4, group="c8", rays=16),
        ),
        ("gcsa_unet_small", dict(SIZELESS, encoder="gcsa_tiny", fields=4, num_heads=2, depth=1)),
        ("gcsa_unet_tiny", dict(proj_drop_rate=0.1, drop_path_rate=0.2, radii=[1, "all"], basis="full")),
        ("smp_unet_resnet18", dict(SIZELESS, rays=4)),
    ],
    ids=str,
)
def test_what_was_written_is_read(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    made = SegmentationPredictor.create(name, **{**TINY, **options})
    randomize(made.network).eval()
    x = torch.rand(1, made.network.in_chans, made.network.min_size, made.network.min_size)
    folder = made.save_pretrained(tmp_path / "weights", {"data": "nuclei"})
    for source in (folder, f"local-dir:{folder}", as_checkpoint(made, tmp_path / "best.ckpt")):
        opened = gcsa.load(source)
        assert isinstance(opened, SegmentationPredictor)
        assert not opened.network.training
        assert (opened.network.name, opened.options) == (name, made.options)
        assert torch.equal(opened.network(x), made.network(x))
        for key in ("output", "rays", "size_divisor", "margin", "out_chans"):
            assert getattr(opened.network, key) == getattr(made.network, key), key
    assert checkpoints.read(folder).about == {"data": "nuclei"}


def test_tensors_of_another_network(tmp_path: Path) -> None:
    path = as_checkpoint(SegmentationPredictor.create("gcsa_unet_tiny", **TINY), tmp_path / "best.ckpt", rays=16)
    with raises("weights.other_architecture"):
        gcsa.load(path)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        (dict(name="gcsa_tiny"), "network"),
        (dict(output="boxes"), "output"),
        (dict(rays=30), "rays"),
        (dict(rays=2), "rays"),
        (dict(rays="32"), "rays"),
        (dict(output="classes", num_classes=1), "num_classes"),
        (dict(pmin=60, pmax=40), "pmin"),
        (dict(prob_thresh=1.0), "prob_thresh"),
        (dict(nms_thresh=-1), "nms_thresh"),
        (dict(in_chans=0), "in_chans"),
        (dict(resolution=0), "resolution"),
        (dict(decoder_fields=[4]), "decoder_fields"),
        (dict(decoder_fields="4"), "decoder_fields"),
        (dict(feilds=4), "option.unknown"),
        (dict(encoder="resnet18", **SIZELESS), "encoder"),
        (dict(encoder="gcsa_nothing"), "model.unknown"),
        (dict(encoder="gcsa_tiny"), "fields"),
        (dict(feature_maps="invariant"), "feature_maps"),
        (dict(pretrained_cfg={"file": "/etc/passwd"}), "option.unknown"),
        (dict(name="smp_unet_resnet18", **SIZELESS, group="d4"), "model.option"),
        (dict(name="smp_unet_resnet18", **SIZELESS, resolution=4), "model.option"),
        (dict(name="smp_unet_resnet18", **SIZELESS, encoder="gcsa_tiny"), "model.option"),
    ],
    ids=str,
)
def test_bad_options(options: dict[str, Any], key: str) -> None:
    with raises(key) as error:
        SegmentationPredictor.create(**{"name": "gcsa_unet_tiny", **TINY, **options})
    assert "\n" not in str(error.value)


def test_sides_of_a_batch() -> None:
    with raises("input.size"):
        Segmenter(**TINY)(torch.zeros(1, 3, 32, 30))
