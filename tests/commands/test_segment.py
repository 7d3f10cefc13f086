"""segment.py: files of every image, one sentence for every bad one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from gcsa.checkpoints import save_segmenter
from gcsa.dense import Segmenter
from gcsa.dense.data.pictures import read_labels, read_picture
from gcsa.testing import randomize

Run = Callable[..., tuple[int, str, str]]
SIZES: dict[str, Any] = dict(fields=[2, 2], depths=[1, 1], heads=[1, 1], radii=[1, 1], stem_fields=[2], rays=8)


@pytest.fixture(scope="module")
def made() -> Segmenter:
    torch.manual_seed(0)
    segmenter = randomize(Segmenter(**SIZES)).eval()
    assert isinstance(segmenter, Segmenter)
    return segmenter


@pytest.fixture
def weights(made: Segmenter, tmp_path: Path) -> Path:
    return save_segmenter(made, tmp_path / "weights")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    values = np.random.default_rng(0)
    Image.fromarray(values.integers(0, 256, (40, 52, 3), dtype=np.uint8)).save(folder / "a.png")
    tifffile.imwrite(folder / "b.tif", values.integers(0, 4096, (33, 40), dtype=np.uint16), photometric="minisblack")
    (folder / "notes.txt").write_text("no image")
    return folder


def test_a_folder(run: Run, weights: Path, images: Path, made: Segmenter, tmp_path: Path) -> None:
    code, out, err = run("segment", weights, images, "--output", tmp_path / "new/found", "--threads", 1, "--tile", 32)
    assert (code, err) == (0, "")
    assert [line.rpartition(": ")[0] for line in out.splitlines()] == [str(images / "a.png"), str(images / "b.tif")]
    found = {path.name for path in (tmp_path / "new/found").iterdir()}
    endings = ("_labels.png", "_overlay.png", "_objects.csv", ".geojson")
    assert found == {f"{stem}{ending}" for stem in "ab" for ending in endings}
    for name in ("a.png", "b.tif"):
        labels = read_labels(tmp_path / f"new/found/{name[0]}_labels.png")
        assert np.array_equal(labels > 0, made.segment(read_picture(images / name, 3)) > 0)
        assert f"{labels.max()} objects" in out


def test_options(run: Run, weights: Path, images: Path, tmp_path: Path) -> None:
    options = ("--output", tmp_path / "found", "--only", "csv", "--threshold", 0.99, "--overlap", 0.1)
    code, out, _ = run("segment", weights, images / "a.png", *options)
    assert (code, out) == (0, f"{images / 'a.png'}: 0 objects\n")
    assert [path.name for path in (tmp_path / "found").iterdir()] == ["a_objects.csv"]


def test_classes(run: Run, images: Path, tmp_path: Path) -> None:
    weights = save_segmenter(Segmenter(task="masks", **SIZES), tmp_path / "classes")
    assert run("segment", weights, images / "a.png", "--output", tmp_path / "found")[0] == 0
    assert (tmp_path / "found/a_classes.csv").is_file()
    code, _, err = run("segment", weights, images / "a.png", "--output", tmp_path / "other", "--threshold", 0.5)
    assert (code, not (tmp_path / "other").exists()) == (2, True)
    assert "--threshold and --overlap are of objects" in err


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
    assert lines[0] == "2 of 4 could not be segmented:"
    assert f"{images / 'five.tif'} holds 5 channels" in lines[1]
    assert f"{images / 'text.png'} cannot be read as an image" in lines[2]
    assert not list((tmp_path / "found").glob("text*")) + list((tmp_path / "found").glob(".gcsa*"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing", "a.png"], "there is no nothing/config.json"),
        (["gcsa_tiny.rotmnist", "a.png"], "gcsa_tiny.rotmnist segments no images: name the weights of a gcsa_unet"),
        (["gcsa_ocr_tiny.fr17", "a.png"], "gcsa_ocr_tiny.fr17 segments no images"),
        (["WEIGHTS", "missing.png"], "there is no missing.png: give images, or folders of them"),
        (["WEIGHTS", "empty"], "empty is a folder without images"),
        (["WEIGHTS", "/dev/null"], "/dev/null is a device or a pipe"),
        (["WEIGHTS", "a.png", "a.tif"], "a.png and a.tif have one name"),
        (["WEIGHTS", "a.png", "--threshold", "1.5"], "1.5 is not a number between 0 and 1"),
        (["WEIGHTS", "a.png", "--tile", "0"], "0 is not a whole number from 1 to 65536"),
        (["WEIGHTS", "a.png", "--device", "tpu"], "--device tpu cannot be used here"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_refused_before_anything_is_read(
    arguments: list[str], sentence: str, run: Run, weights: Path, tmp_path: Path
) -> None:
    for name in ("a.png", "a.tif"):
        Image.new("L", (8, 8)).save(name)
    Path("empty").mkdir()
    code, out, err = run(
        "segment", *(str(weights) if a == "WEIGHTS" else a for a in arguments), "--output", tmp_path / "found"
    )
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "found").exists()


def test_the_output_must_be_a_folder(run: Run, weights: Path, images: Path) -> None:
    code, _, err = run("segment", weights, images, "--output", images / "notes.txt")
    assert code == 2
    assert "is a file: name a folder" in err
