"""gcsa segment: files of every image, one sentence for every bad one."""

import csv
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image
from skimage.data import coffee

from gcsa.actions import transform_array
from gcsa.groups import group
from gcsa.images.reader import read_labels
from gcsa.tasks.segmentation import SegmentationPredictor, Segmenter
from gcsa.testing import randomize
from tests.tasks.segmentation.networks import uneven

Run = Callable[..., tuple[int, str, str]]
SIZES: dict[str, Any] = dict(fields=[2, 2], depths=[1, 1], num_heads=[1, 1], radii=[1, 1], stem_fields=[2], rays=8)


@pytest.fixture(scope="module")
def made() -> SegmentationPredictor:
    torch.manual_seed(0)
    predictor = SegmentationPredictor.create("gcsa_unet_tiny", **SIZES)
    randomize(predictor.network).eval()
    return predictor


@pytest.fixture
def weights(made: SegmentationPredictor, tmp_path: Path) -> Path:
    return made.save_pretrained(tmp_path / "weights")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    Image.fromarray(uneven((40, 52, 3))).save(folder / "a.png")
    tifffile.imwrite(folder / "b.tif", uneven((33, 40), 4096, np.uint16), photometric="minisblack")
    (folder / "notes.txt").write_text("no image")
    return folder


def test_a_folder(run: Run, weights: Path, images: Path, made: SegmentationPredictor, tmp_path: Path) -> None:
    code, out, err = run("segment", weights, images, "--output", tmp_path / "new/found", "--threads", 1, "--tile", 72)
    assert (code, err) == (0, "")
    assert [line.rpartition(": ")[0] for line in out.splitlines()] == [str(images / "a.png"), str(images / "b.tif")]
    found = {path.name for path in (tmp_path / "new/found").iterdir()}
    endings = ("_labels.png", "_overlay.png", "_objects.csv", ".geojson")
    assert found == {f"{stem}{ending}" for stem in "ab" for ending in endings} | {"gcsa_segment.ledger", "images.csv"}
    for name in ("a.png", "b.tif"):
        labels = read_labels(tmp_path / f"new/found/{name[0]}_labels.png")
        assert np.array_equal(labels > 0, made.predict(images / name).labels > 0)
        assert f"{labels.max()} objects" in out


def test_a_name_that_is_not_utf8_is_escaped(run: Run, weights: Path, images: Path, tmp_path: Path) -> None:
    named = (images / "a.png").rename(images / os.fsdecode(b"\xff.png"))
    for _ in range(2):
        assert run("segment", weights, named, "--output", tmp_path / "found", "--only", "csv")[0] == 0
        header, row = (tmp_path / "found/images.csv").read_text(encoding="utf-8").splitlines()
        assert row.startswith("\\udcff,")


def test_options(run: Run, weights: Path, images: Path, tmp_path: Path) -> None:
    options = ("--output", tmp_path / "found", "--only", "csv,geojson", "--prob-thresh", 0.99)
    code, out, err = run("segment", *options, weights, images / "a.png")
    assert (code, out) == (0, f"{images / 'a.png'}: 0 objects\n")
    assert err.startswith("nothing was found in 1 of 1 images: lower --prob-thresh")
    assert sorted(path.name for path in (tmp_path / "found").iterdir()) == [
        "a.geojson",
        "a_objects.csv",
        "gcsa_segment.ledger",
        "images.csv",
    ]
    assert json.loads((tmp_path / "found/a.geojson").read_text())["features"] == []
    assert len((tmp_path / "found/a_objects.csv").read_text().splitlines()) == 1


def test_a_picture_of_one_pixel(run: Run, weights: Path, tmp_path: Path) -> None:
    Image.new("L", (1, 1), 7).save(tmp_path / "x.png")
    code, out, err = run("segment", weights, tmp_path / "x.png", "--output", tmp_path / "found", "--prob-thresh", 0.001)
    assert (code, err) == (0, "")
    assert len(list((tmp_path / "found").glob("x*"))) == 4
    assert read_labels(tmp_path / "found/x_labels.png").shape == (1, 1)
    rows = list(csv.DictReader((tmp_path / "found/x_objects.csv").read_text().splitlines()))
    features = json.loads((tmp_path / "found/x.geojson").read_text())["features"]
    assert f"{len(rows)} objects" in out
    assert len(rows) == len(features)


def test_stacks(run: Run, weights: Path, made: SegmentationPredictor, tmp_path: Path) -> None:
    """A channel of every slice by itself, or of their largest values; the table is in micrometres."""
    stack = uneven((3, 2, 40, 52), 4096, np.uint16, axes=(2, 3))
    path, found = tmp_path / "x.ome.tif", tmp_path / "found"
    size = {"PhysicalSizeX": 0.5, "PhysicalSizeY": 0.5}
    metadata = {"axes": "ZCYX", "Channel": {"Name": ["DAPI", "GFP"]}, **size}
    tifffile.imwrite(path, stack, ome=True, photometric="minisblack", metadata=metadata)
    chosen = ("--channel", "GFP", "--z")
    for z, expected in (
        ("all", {f"x.ome_z{i + 1}": plane for i, plane in enumerate(stack[:, 1])}),
        ("max", {"x.ome": stack[:, 1].max(0)}),
    ):
        code, out, err = run("segment", weights, path, "--output", found, *chosen, z, "--properties", "perimeter")
        assert (code, err, len(out.splitlines())) == (0, "", len(expected))
        for stem, plane in expected.items():
            labels = read_labels(found / f"{stem}_labels.png")
            assert labels.any()
            assert np.array_equal(labels > 0, made.predict(plane).labels > 0)
            rows = list(csv.DictReader((found / f"{stem}_objects.csv").read_text().splitlines()))
            assert all(float(row["area_um2"]) == int(row["area"]) / 4 for row in rows)
            assert "perimeter_um" in rows[0]
    assert len(list(found.glob("x*"))) == 4 * 4
    code, out, err = run("segment", weights, path, tmp_path, "--output", tmp_path, *chosen, "all", "--only", "labels")
    assert (code, out.count("\n")) == (0, 3)
    others = *chosen, "all", "--only", "labels", "--overwrite"
    code, out, err = run("segment", weights, tmp_path, "--output", found, *others)
    assert (code, out.count("\n")) == (0, 3), "labels of slices are no images to segment"
    code, out, err = run("segment", weights, path, "--output", found, "--z", "all", "--overwrite")
    assert (code, out) == (1, "")
    assert "holds 2 channels (DAPI, GFP)" in err


def test_small_objects(run: Run, weights: Path, images: Path, tmp_path: Path) -> None:
    areas = []
    for least in (1, 150):
        arguments = ("--output", tmp_path / "found", "--overwrite", "--min-area", least)
        code, _, err = run("segment", weights, images / "a.png", *arguments)
        assert code == 0, err
        rows = list(csv.DictReader((tmp_path / "found/a_objects.csv").read_text().splitlines()))
        areas.append([int(row["area"]) for row in rows])
        assert read_labels(tmp_path / "found/a_labels.png").max() == len(rows)
        assert len(json.loads((tmp_path / "found/a.geojson").read_text())["features"]) == len(rows)
    assert areas[1] == [area for area in areas[0] if area >= 150] != areas[0]


def test_classes(run: Run, images: Path, tmp_path: Path) -> None:
    predictor = SegmentationPredictor.create("gcsa_unet_tiny", output="classes", num_classes=4, **SIZES)
    weights = predictor.save_pretrained(tmp_path / "classes")
    code, out, _ = run("segment", weights, images / "a.png", "--output", tmp_path / "found")
    assert code == 0
    table = list(csv.DictReader((tmp_path / "found/a_classes.csv").read_text().splitlines()))
    there = ", ".join(row["class"] for row in table if row["pixels"] != "0")
    assert out == f"{images / 'a.png'}: classes {there}\n"
    code, _, err = run("segment", weights, images / "a.png", "--output", tmp_path / "other", "--prob-thresh", 0.5)
    assert (code, not (tmp_path / "other").exists()) == (2, True)
    assert "--prob-thresh is of objects" in err
    for option in (("--min-area", 9), ("--properties", "solidity")):
        code, _, err = run("segment", weights, images / "a.png", "--output", tmp_path / "other", *option)
        assert (code, not (tmp_path / "other").exists()) == (2, True)
        assert "--min-area and --properties are of objects" in err
    code, _, err = run("segment", weights, images / "a.png", "--output", tmp_path / "other", "--only", "geojson")
    assert (code, not (tmp_path / "other").exists()) == (2, True)
    assert "--only geojson is of objects" in err


def test_what_cannot_be_read_is_listed_and_the_rest_is_segmented(
    run: Run, weights: Path, images: Path, tmp_path: Path
) -> None:
    (images / "text.png").write_text("no image at all")
    tifffile.imwrite(
        images / "five.tif", np.zeros((40, 40, 5), np.uint8), photometric="minisblack", planarconfig="contig"
    )
    code, out, err = run("segment", weights, images, "--output", tmp_path / "found")
    assert (code, len(out.splitlines())) == (1, 2)
    lines = err.splitlines()
    assert f"{images / 'five.tif'} holds 5 channels" in lines[0]
    assert f"{images / 'text.png'} cannot be read as an image" in lines[1]
    assert lines[2] == "2 of 4 could not be segmented"
    assert not list((tmp_path / "found").glob("text*")) + list((tmp_path / "found").glob(".gcsa*"))
    for name, there in (("new", False), ("old", True)):  # a folder for nothing goes, unless the user made it
        (tmp_path / "old").mkdir(exist_ok=True)
        assert run("segment", weights, images / "text.png", "--output", tmp_path / name)[0] == 1
        assert (tmp_path / name).exists() is there


def test_the_output_must_take_files(
    run: Run, weights: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is tried before anything is read."""

    def refused(*args: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("gcsa._utils.atomic.tempfile.TemporaryDirectory", refused)
    code, out, err = run("segment", weights, images, "--output", tmp_path)
    assert (code, out) == (2, "")
    assert f"the folder {tmp_path} takes no files" in err


def test_images_are_not_overwritten(run: Run, weights: Path, images: Path) -> None:
    """Neither one that is called like an output, nor, with the same folder, the outputs of an earlier run."""
    assert run("segment", weights, images, "--output", images)[0] == 0
    before = {path: path.read_bytes() for path in images.iterdir()}
    code, out, err = run("segment", weights, images, "--output", images / "../images")
    assert (code, out) == (2, "")
    assert "is one of the images, and would be overwritten: name another --output" in err
    assert before == {path: path.read_bytes() for path in images.iterdir()}
    code, out, err = run("segment", weights, images, "--output", "elsewhere")
    assert (code, out.count("\n")) == (0, 2), "labels and overlays are no images to segment"
    assert err.startswith("4 of 6 images are left out: they are called like labels or overlays")
    assert run("segment", weights, images / "a_overlay.png", "--output", "overlay")[0] == 0


def test_too_little_memory_is_of_one_image(
    run: Run, weights: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def allocated(self: Segmenter, x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    monkeypatch.setattr(Segmenter, "forward", allocated)
    code, out, err = run("segment", weights, images, "--output", tmp_path / "found")
    assert (code, out) == (1, "")
    assert err.splitlines()[:-1] == [
        f"{images / name}: not enough memory: choose a smaller --tile, or cut the image" for name in ("a.png", "b.tif")
    ]


def test_interrupted(run: Run, weights: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gcsa.tasks.segmentation.writers.object_rows", interrupted)
    code, _, err = run("segment", weights, images, "--output", tmp_path / "found")
    assert (code, err) == (130, "error: interrupted\n")
    names = {path.name for path in (tmp_path / "found").iterdir()}
    assert names == {"a_labels.png", "a_overlay.png", "gcsa_segment.ledger"}
    monkeypatch.undo()
    assert run("segment", weights, images, "--output", tmp_path / "found")[0] == 0, "the same command goes on"


def test_lines_go_to_stdout_while_the_bar_is_shown(
    run: Run, weights: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # for rich: stderr is a terminal
    code, out, err = run("segment", weights, images, "--output", tmp_path / "found")
    assert (code, len(out.splitlines())) == (0, 2)
    assert "100%" in err
    assert "objects" not in err


def test_nobody_reads_on(
    run: Run, weights: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The images are segmented all the same."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        code, _, err = run("segment", weights, images, "--output", tmp_path / "found")
    assert (code, err) == (0, "")
    assert len(list((tmp_path / "found").glob("[ab]*"))) == 8


class Places(torch.nn.Module):
    """A segmenter that sees directions and places, with two logits; or a probability and eight distances."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, channels, 5, padding=2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps = self.conv(images)
        maps = maps + torch.linspace(0, 0.1, images.shape[3])
        if maps.shape[1] > 2:
            return torch.cat([maps[:, :1].sigmoid(), 3 + maps[:, 1:].sigmoid()], 1)
        return maps


@pytest.mark.filterwarnings("ignore")  # of torch, about its older formats
@pytest.mark.parametrize("kind", ["classes", "instances"])
@pytest.mark.parametrize("suffix", [".pt", ".onnx"])
def test_the_segmenter_of_somebody_else(run: Run, images: Path, tmp_path: Path, kind: str, suffix: str) -> None:
    """With --symmetry canonical, no pixel changes in any pose; without it, some do."""
    network, x, source = Places(2 if kind == "classes" else 9), torch.rand(1, 3, 64, 96), tmp_path / f"net{suffix}"
    if suffix == ".pt":
        torch.jit.trace(network, x).save(source)
    else:
        pytest.importorskip("onnxruntime")
        axes = {"images": {2: "height", 3: "width"}}
        scripted = torch.jit.trace(network, x)
        torch.onnx.export(scripted, (x,), source, input_names=["images"], dynamic_axes=axes, dynamo=False)
    picture = np.asarray(Image.open(images / "a.png"))
    d4, folder = group("d4"), tmp_path / "poses"
    folder.mkdir()
    for g in range(8):
        Image.fromarray(np.ascontiguousarray(transform_array(picture, d4, g))).save(folder / f"{g}.png")
    changed = {}
    for name, options in {"alone": (), "exact": ("--symmetry", "canonical")}.items():
        found = tmp_path / name
        code, _, err = run(
            "segment", source, folder, "--output", found, "--outputs", kind, "--only", "labels", *options
        )
        assert code == 0, err
        labels = [transform_array(read_labels(found / f"{g}_labels.png"), d4, int(d4.inverse[g])) for g in range(8)]
        assert 0 < (labels[0] > 0).mean() < 1
        changed[name] = sum(int((other != labels[0]).sum()) for other in labels)
    assert changed["exact"] == 0 < changed["alone"]


def test_what_is_no_segmenter(
    run: Run, weights: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("nets.py").write_text(
        "def half(x):\n    return x[:, :, ::2, ::2]\ndef row(x):\n    return x.mean((2, 3))\ndef nan(x):\n    return x / 0\n"
        "def two(x):\n    return x[:, :2]\n"
    )
    for arguments, words in (
        (
            ("nets:half",),
            "nets:half gives (1, 3, 32, 48) for an image of 3 x 64 x 96: a map (B, C, H, W) of its size is wanted",
        ),
        (("nets:row",), "nets:row gives (1, 3) for an image"),
        (("nets:none",), "nets:none cannot be imported"),
        (("nets:nan",), "gives NaN or infinite values"),
        (("nets:two", "--outputs", "instances"), "a probability and 3 distances or more are wanted"),
        (("nets:two", "--outputs", "probability"), "one probability is wanted"),
        ((weights, "--diameter", "0"), "0 is not a positive number"),
        ((weights, "--diameter", "10"), "do not say how large their training objects were"),
        ((weights, "--scale", "1000"), "--scale=1000"),
        ((weights, "--scale", "auto"), "needs weights of instances that say their diameter"),
        ((weights, "--scale", "automatic"), "automatic is neither auto nor a positive number"),
        ((weights, "--outputs", "classes"), "says its own: leave it out"),
        ((weights, "--symmetry", "canonical"), "gcsa_unet_tiny is exact under d4 already: leave out symmetry"),
        ((weights, "--properties", "volume"), "'volume' is none of area_convex, area_filled"),
        ((weights, "--properties", "solidity", "--only", "labels"), "add csv to --only"),
        ((weights, "--z", "mean"), "mean is neither max, all nor a whole number"),
        ((weights, "--time", "0"), "0 is not a whole number"),
    ):
        code, out, err = run("segment", *arguments, images, "--output", tmp_path / "found")
        assert (code, out) == (2, ""), err
        assert words in err
        assert not (tmp_path / "found").exists()


def test_what_a_network_gives_is_looked_at_for_each_image(
    run: Run, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Probabilities taken for logits make every pixel an object, and a map of another size is shifted: both without a word."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("shares.py").write_text(
        "def share(x):\n    return (x[:, :1] - 0.5).sigmoid()\n"
        "def logits(x):\n    return x[:, :1].repeat(1, 9, 1, 1) - 5\n"
        "def larger(x):\n    return x if x.shape[2:] == (64, 96) else x.repeat(1, 1, 2, 2)\n"
        "def fails(x):\n    assert x.shape[2:] == (64, 96)\n    return x\n"
    )
    for arguments, words in (
        (("shares:share",), "name --outputs probability"),
        (("shares:logits", "--outputs", "instances"), "values beyond 0 to 1 in the first channel"),
        (("shares:larger",), "a map (B, C, H, W) of its size is wanted"),
        (("shares:fails",), "does not take an image of"),
    ):
        code, _, err = run("segment", *arguments, images / "a.png", "--output", tmp_path / "found")
        assert code == 1, err
        assert words in err
    code, out, err = run("segment", "shares:share", images, "--outputs", "probability", "--output", tmp_path / "found")
    assert code == 0, err
    labels = read_labels(tmp_path / "found/a_labels.png")
    assert 0.2 < (labels > 0).mean() < 0.8


def test_the_size_of_objects(run: Run, images: Path, made: SegmentationPredictor, tmp_path: Path) -> None:
    weights = SegmentationPredictor(made.network, diameter=20.0).save_pretrained(tmp_path / "weights")
    for option in (("--scale", "2"), ("--diameter", "10"), ("--scale", "auto")):
        code, _, err = run(
            "segment", weights, images / "a.png", "--output", tmp_path / option[1], *option, "--only", "labels"
        )
        assert code == 0, err
        found = read_labels(tmp_path / option[1] / "a_labels.png")
        scale: Any = 2.0 if option[1] != "auto" else "auto"
        expected = SegmentationPredictor(made.network, diameter=20.0).predict(images / "a.png", scale=scale).labels
        assert np.array_equal(found > 0, expected > 0)


def test_micrometres_a_pixel(
    run: Run, weights: Path, images: Path, made: SegmentationPredictor, tmp_path: Path
) -> None:
    picture = np.asarray(Image.open(images / "a.png"))
    scaled = dict(resolution=(20_000, 20_000), resolutionunit="CENTIMETER")
    tifffile.imwrite(tmp_path / "a.tif", picture, photometric="rgb", **scaled)
    command = ("segment", weights, "--output", tmp_path / "found", "--only", "labels", "--mpp", 0.25)
    assert run(*command, tmp_path / "a.tif")[0] == 0
    expected = SegmentationPredictor(made.network).predict(picture, scale=2.0).labels
    assert np.array_equal(np.asarray(Image.open(tmp_path / "found/a_labels.png")), expected)
    (tmp_path / "found/a_labels.png").unlink()
    code, _, err = run(*command, images / "a.png")
    assert (code, "a.png does not say how many micrometres a pixel has" in err) == (1, True)


def test_an_image_that_it_was_not_trained_for(run: Run, tmp_path: Path) -> None:
    """The table of its objects tells the OOD score, and a line on stderr names the image."""
    nuclei, cup = Path(__file__).parents[1] / "stored/nuclei.png", tmp_path / "cup.png"
    Image.fromarray(coffee()[:256, :256]).save(cup)
    arguments = ("gcsa_unet_tiny.nuclei", cup, nuclei, "--output", tmp_path / "found")
    code, _, err = run("segment", *arguments, "--only", "csv")
    assert code == 0
    named = "warning: 1 of 2 images are unlike those of training (OOD score above 1): "
    assert any(line.startswith(f"{named}{cup} (") for line in err.splitlines())
    rows = list(csv.DictReader((tmp_path / "found/nuclei_objects.csv").read_text().splitlines()))
    assert len({row["ood_score"] for row in rows}) == 1
    assert float(rows[0]["ood_score"]) < 1
    blank = tmp_path / "blank.png"
    Image.new("L", (64, 64), 9).save(blank)
    assert run("segment", "gcsa_unet_tiny.nuclei", blank, "--output", tmp_path / "found", "--only", "csv")[0] == 0
    images = list(csv.DictReader((tmp_path / "found/images.csv").read_text().splitlines()))
    assert [row["image"] for row in images] == ["cup", "nuclei", "blank"], "of both runs"
    assert (images[1]["objects"], images[2]["objects"]) == (str(len(rows)), "0")
    assert float(images[1]["ood_score"]) == pytest.approx(float(rows[0]["ood_score"]), rel=1e-5)
    assert float(images[2]["ood_score"]) > 1
