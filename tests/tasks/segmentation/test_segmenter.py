"""Segmenters: one answer for all poses of an image of any size, and one network behind files and options."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import gcsa
from gcsa import weights as checkpoints
from gcsa.groups import group
from gcsa.models.create import SEGMENTERS, create_model
from gcsa.tasks.recognition.ctc import CTCRecognizer
from gcsa.tasks.segmentation import Segmenter, segmenter as module
from gcsa.tasks.segmentation.metrics import changes
from gcsa.testing import act, assert_equivariant, randomize, relative_error

TINY: dict[str, Any] = dict(fields=[2, 4], depths=[1, 1], heads=[1, 2], radii=[1, 1], stem_fields=[2], rays=8)
SIZELESS = dict.fromkeys(("fields", "depths", "heads", "radii", "stem_fields"))
"""Options of another encoder than a pyramid: its own."""
D4 = group("d4")
SIZES = [(1, 1), (1, 30), (3, 5), (7, 8), (8, 8), (13, 16), (33, 40), (31, 17)]
"""Pixels of images: `multiple` is 8, so some are smaller, and some lack an odd number on one side or both."""


def untrained(**options: Any) -> Segmenter:
    """A small network whose logits lie about 0, so that it finds objects, and whose attention counts."""
    made = randomize(Segmenter(**{**TINY, "layer_scale": 1.0, **options})).double().eval()
    out: Any = made.network.head.out
    with torch.no_grad():
        logits = made(torch.randn(1, made.in_chans, 48, 48, dtype=torch.float64))[:, : made.network.head.count]
        out.bias[: made.network.head.count] -= logits.mean((0, 2, 3))
    return made


def error(segmenter: Segmenter, image: Tensor) -> float:
    """The largest relative error of `maps` over all eight poses of an image."""
    found, errors = segmenter.maps(image)[None], []
    for g in D4.exact_elements:
        moved = segmenter.maps(D4.act_on_grid(image, g))[None]
        errors.append(relative_error(moved[:, :1], act(found[:, :1], D4, g, "image")))
        errors.append(relative_error(moved[:, 1:], act(found[:, 1:], D4, g, "rays")))
    return max(errors)


@pytest.mark.parametrize("in_chans", [1, 3])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_maps_of_any_size_turn_with_the_image(size: tuple[int, int], in_chans: int) -> None:
    segmenter = untrained(in_chans=in_chans)
    image = torch.randn(in_chans, *size, dtype=torch.float64)
    assert segmenter.maps(image).shape == (9, *size)
    with torch.no_grad():
        assert error(segmenter, image) < 1e-10


@pytest.mark.parametrize("size", [(8, 8), (9, 10), (24, 26)], ids=str)
def test_images_smaller_than_a_neighbourhood(size: tuple[int, int]) -> None:
    """The coarsest of the maps would have one or two positions, and a radius of 4."""
    segmenter = untrained(radii=[1, 4])
    assert (segmenter.multiple, segmenter.least) == (8, 32)
    with torch.no_grad():
        assert error(segmenter, torch.randn(3, *size, dtype=torch.float64)) < 1e-10


@pytest.mark.parametrize("place", [0, -1])
def test_one_place_of_an_odd_size_would_prefer_a_side(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the two places."""
    segmenter, image = untrained(), torch.randn(3, 13, 16, dtype=torch.float64)
    both = module.placements
    monkeypatch.setattr(module, "placements", lambda *sides: [both(*sides)[place]])
    with torch.no_grad():
        assert error(segmenter, image) > 1e-3
        assert error(segmenter, torch.randn(3, 14, 16, dtype=torch.float64)) < 1e-10


def test_an_image_that_fits_is_read_as_it_is() -> None:
    segmenter, image = untrained(), torch.randn(3, 16, 24, dtype=torch.float64)
    assert torch.equal(segmenter.maps(image), segmenter(image[None])[0])


def test_what_lies_beyond_an_image_is_its_mirror_image() -> None:
    """Without the edge twice; and an image of two pixels goes on between two mirrors."""
    image = torch.arange(6.0).view(1, 2, 3)
    beyond = module._reflected(image, (2, 3, 1, 1))
    assert beyond.shape == (1, 4, 8)
    assert beyond[0, 1].tolist() == [2, 1, 0, 1, 2, 1, 0, 1]
    assert beyond[0, :, 2].tolist() == [3, 0, 3, 0]
    assert module._reflected(image[:, :1, :1], (1, 2, 3, 0)).unique().tolist() == [0]


@pytest.mark.parametrize("name", SEGMENTERS)
def test_every_registered_segmenter(name: str) -> None:
    """As deep and wide as registered: equivariant to its group, but for the one that has none, which is the control."""
    segmenter = Segmenter(name, task="masks", num_classes=3, in_chans=1)
    for key, parameter in segmenter.named_parameters():
        if key.endswith(("scale1.gamma", "scale2.gamma")):
            torch.nn.init.ones_(parameter)
    randomize(segmenter)
    x = torch.randn(1, 1, segmenter.least, segmenter.least)
    if name.startswith("gcsa"):
        assert segmenter.group == D4
        assert_equivariant(segmenter, x, "d4", "image", "image", elements=[1, 4], dtypes=[torch.float64])
    else:
        assert segmenter.group == group("c1")
        with pytest.raises(AssertionError, match="not equivariant"):
            assert_equivariant(segmenter.eval(), torch.randn(2, 1, 64, 64), "d4", "image", "image", elements=[1])


@pytest.mark.parametrize("size", [(33, 40), (48, 48), (7, 60)], ids=str)
def test_objects_are_the_same_in_every_pose(size: tuple[int, int]) -> None:
    segmenter = untrained(radii=[1, 1], threshold=0.45)
    with torch.no_grad():
        image = torch.randn(3, *size, dtype=torch.float64)
        upright = segmenter.labels(segmenter.maps(image))
        assert upright.max() >= 3, "there is something to find"
        for g in D4.exact_elements:
            labels = segmenter.labels(segmenter.maps(D4.act_on_grid(image, g)))
            back = D4.act_on_grid(torch.from_numpy(labels.copy()), int(D4.inverse[g])).numpy()
            assert changes(upright, back) == (0, 0), g


@pytest.mark.parametrize("classes", [2, 4])
def test_masks_are_the_same_in_every_pose(classes: int) -> None:
    segmenter = untrained(task="masks", num_classes=classes)
    image = torch.randn(3, 33, 40, dtype=torch.float64)
    upright = segmenter.labels(segmenter.maps(image))
    assert len(np.unique(upright)) == classes
    assert upright.dtype == np.int32
    for g in D4.exact_elements:
        labels = segmenter.labels(segmenter.maps(D4.act_on_grid(image, g)))
        assert np.array_equal(labels, D4.act_on_grid(torch.from_numpy(upright), g).numpy()), g


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize("in_chans", [1, 3])
def test_pictures_of_every_depth(dtype: Any, in_chans: int) -> None:
    """The label map is of the picture's size, and does not depend on the camera's zero and its gain."""
    segmenter = untrained(in_chans=in_chans, threshold=0.45)
    levels = np.random.default_rng(0).integers(0, 100, (21, 30, in_chans))
    first = segmenter.segment(levels.astype(dtype))
    assert first.shape == (21, 30)
    assert first.max() > 0
    assert np.array_equal(first, segmenter.segment((2 * levels + 16).astype(dtype)))
    assert segmenter.tensor(levels.astype(dtype)).dtype == torch.float64
    assert segmenter.float().tensor(levels.astype(dtype)).dtype == torch.float32


def test_a_picture_of_one_level() -> None:
    assert untrained(in_chans=1).segment(np.full((20, 20, 1), 7, np.uint8)).shape == (20, 20)


def as_checkpoint(made: Segmenter, path: Path, **changed: Any) -> Path:
    """The .ckpt that train.py writes of a segmenter."""
    tensors = {f"model.{name}": tensor for name, tensor in made.state_dict().items()}
    hyper = {"task": "segmentation", "model": {"name": made.name, **made.options, **changed}, "adapter": None}
    torch.save({"state_dict": tensors, "hyper_parameters": hyper}, path)
    return path


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gcsa_unet_tiny", {}),
        ("gcsa_unet_tiny", dict(task="masks", num_classes=5, in_chans=1, decoder_fields=[3, 5], decoder_depth=2)),
        ("gcsa_unet_tiny", dict(low=2, high=98.5, threshold=0.25, overlap=0.1, resolution=4, group="c8", rays=16)),
        ("gcsa_unet_small", dict(SIZELESS, encoder="gcsa_tiny", fields=4, heads=2, depth=1)),
        ("gcsa_unet_tiny", dict(proj_drop_rate=0.1, drop_path_rate=0.2, radii=[1, "all"], basis="full")),
    ],
    ids=str,
)
def test_what_was_written_is_read(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    made = randomize(Segmenter(name, **{**TINY, **options})).eval()
    x = torch.rand(1, made.in_chans, made.least, made.least)
    folder = checkpoints.save_segmenter(made, tmp_path / "weights", {"data": "nuclei"})
    for source in (folder, f"local-dir:{folder}", as_checkpoint(made, tmp_path / "best.ckpt")):
        opened = gcsa.load(source).network
        assert not opened.training
        assert (opened.name, opened.options) == (name, made.options)
        assert torch.equal(opened(x), made(x))
        for key in ("task", "rays", "low", "high", "threshold", "overlap", "multiple", "margin", "outputs"):
            assert getattr(opened, key) == getattr(made, key), key
    assert checkpoints.read(folder).about == {"data": "nuclei"}
    assert checkpoints.read(folder).task == "segmentation"


def test_the_plain_network_is_read_too(tmp_path: Path) -> None:
    made = Segmenter("smp_unet_resnet18", rays=4).eval()
    opened = gcsa.load(checkpoints.save_segmenter(made, tmp_path / "weights")).network
    x = torch.rand(1, 3, 32, 32)
    assert torch.equal(opened(x), made(x))


def test_thresholds_travel_along(tmp_path: Path) -> None:
    made = untrained()
    maps = made.maps(torch.randn(3, 48, 48, dtype=torch.float64))
    before = made.labels(maps)
    made.set_thresholds(0.7, 0.05)
    opened = gcsa.load(checkpoints.save_segmenter(made, tmp_path / "weights")).network
    assert (opened.threshold, opened.overlap) == (0.7, 0.05)
    assert np.array_equal(opened.labels(maps), made.labels(maps))
    assert len(np.unique(before)) > len(np.unique(made.labels(maps)))


def test_weights_of_something_else(tmp_path: Path) -> None:
    sizes: dict[str, Any] = dict(depth=1, fields=4, group="c4")
    classifier = checkpoints.save_classifier(
        create_model("gcsa_tiny", num_classes=3, **sizes), tmp_path / "classifier", input_size=(1, 28, 28)
    )
    recognizer = checkpoints.save_recognizer(CTCRecognizer("ab", hidden=8, **sizes), tmp_path / "recognizer")
    made = Segmenter(**TINY)
    folder = checkpoints.save_segmenter(made, tmp_path / "segmenter")
    for source, task in ((classifier, "segmentation"), (recognizer, "segmentation"), (folder, "recognition")):
        with pytest.raises(ValueError, match=f"{source}.*name weights for {task}"):
            gcsa.load(source, task=task)
    with pytest.raises(FileNotFoundError, match=r"name a folder of weights as train\.py writes it"):
        gcsa.load(tmp_path / "nothing")


def test_tensors_of_another_network(tmp_path: Path) -> None:
    path = as_checkpoint(Segmenter(**TINY), tmp_path / "best.ckpt", rays=16)
    with pytest.raises(ValueError, match="holds another architecture"):
        gcsa.load(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            dict(name="gcsa_tiny"),
            "unknown network 'gcsa_tiny': choose one of gcsa_unet_tiny, gcsa_unet_small, smp_unet",
        ),
        (dict(task="boxes"), "model option task='boxes' must be one of instances, masks"),
        (dict(rays=30), "rays=30 must be a multiple of 4"),
        (dict(rays=2), "model option rays=2 must be a whole number from 3 to 256"),
        (dict(rays="32"), "model option rays='32' must be a whole number"),
        (dict(task="masks", num_classes=1), "num_classes=1 must be 2 or more: the background is a class"),
        (dict(low=60, high=40), "model option low=60 must be below high=40"),
        (dict(threshold=1.0), "model option threshold=1.0 must be a number from 0.001 to 0.999"),
        (dict(overlap=-1), "model option overlap=-1 must be a number from 0 to 1"),
        (dict(in_chans=0), "model option in_chans=0 must be a whole number from 1"),
        (dict(resolution=0), "model option resolution=0 must be a whole number from 1 to 64"),
        (dict(decoder_fields=[4]), r"decoder_fields=\[4\] needs 2 entries, one for each stride of 2, 4"),
        (dict(decoder_fields="4"), "model option decoder_fields='4' must be a list of up to 8"),
        (dict(feilds=4), "unknown model option 'feilds': did you mean fields"),
        (dict(encoder="resnet18", **SIZELESS), "ResNet is no encoder of an equivariant U-Net"),
        (dict(encoder="gcsa_nothing"), "unknown model 'gcsa_nothing': choose one of"),
        (dict(encoder="gcsa_tiny"), "heads=|does not take|must be"),
        (dict(feature_maps="invariant"), "feature_maps=invariant is for the decoders of other libraries"),
        (dict(pretrained_cfg={"file": "/etc/passwd"}), "unknown model option 'pretrained_cfg'"),
        (
            dict(name="smp_unet_resnet18", **SIZELESS, group="d4"),
            "does not take group: it is a fixed network",
        ),
        (
            dict(name="smp_unet_resnet18", **SIZELESS, resolution=4),
            "does not take resolution: it is a fixed",
        ),
        (dict(name="smp_unet_resnet18", **SIZELESS, encoder="gcsa_tiny"), "does not take encoder: it is a"),
    ],
    ids=str,
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        Segmenter(**{**TINY, **options})
    assert "\n" not in str(error.value)
    assert len(re.sub("choose one of.*", "", str(error.value))) < 300


@pytest.mark.parametrize("shape", [(40, 40), (40, 40, 1), (3, 40, 40), (40, 40, 4), (0, 40, 3)], ids=str)
def test_pictures_of_another_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"a picture of shape .* must be \(H, W, 3\), as .*read_picture"):
        Segmenter(**TINY).segment(np.zeros(shape, np.uint8))


def test_pictures_of_other_numbers() -> None:
    values = np.random.default_rng(0).integers(0, 200, (24, 24, 3))
    segmenter = Segmenter(**TINY, task="masks").eval()
    expected = segmenter.segment(values.astype(np.uint8))
    for kind in (np.uint32, np.float32):
        assert np.array_equal(segmenter.segment(values.astype(kind)), expected)


def test_an_image_moves_to_the_network() -> None:
    assert Segmenter(**TINY).to("meta").maps(torch.zeros(3, 32, 32)).device.type == "meta"


def test_sides_of_a_batch() -> None:
    with pytest.raises(ValueError, match="both sides must be multiples of 8; resize 30 to 24 or 32"):
        Segmenter(**TINY)(torch.zeros(1, 3, 32, 30))
