"""gcsa classify: a row for every image, the same for every pose, one sentence for every bad image, a whole file or none."""

import csv
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image
from skimage.data import coffee
from torch import Tensor, nn

from gcsa.batch import Run as Batch
from gcsa.cluster import ENVIRONMENT
from gcsa.images.prepare import Prepare
from gcsa.images.resampling import resampled
from gcsa.tasks import load
from gcsa.tasks.classification import folder
from tests.integrations.pictures import patches, poses

from .conftest import Run

WEIGHTS = "gcsa_pooled_small.pcam"
STEADY = "gcsa_pooled_small.pcam_steady"


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Two patches, the first in eight poses."""
    (tmp_path / "images").mkdir()
    first, second = patches(2)
    for place, pose in enumerate([*poses(first), second]):
        Image.fromarray(pose).save(tmp_path / f"images/{place}.png")
    return tmp_path / "images"


def test_a_row_for_every_image(run: Run, images: Path, tmp_path: Path) -> None:
    assert run("classify", WEIGHTS, images, "--output", "a.csv", "--batch-size", 4) == (0, "a.csv: 9 images\n", "")
    with open("a.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["file"] for row in rows] == [str(images / f"{i}.png") for i in range(9)]
    predictor = load(WEIGHTS)
    for row in rows:
        expected = predictor.predict(row["file"])
        assert row["label"] == expected.label
        assert float(row["confidence"]) == pytest.approx(expected.confidence, abs=1e-5)
        assert {name: float(row[name]) for name in predictor.class_names} == pytest.approx(expected.scores, abs=1e-5)
    assert max(float(row["tumour"]) for row in rows[:8]) - min(float(row["tumour"]) for row in rows[:8]) < 1e-5
    code, out, _ = run("classify", WEIGHTS, images)
    assert (code, out) == (0, Path("a.csv").read_text())
    assert run("classify", WEIGHTS, images, "--symmetry", "averaged", "--output", "b.csv")[0] == 0
    with open("b.csv", newline="") as file:
        averaged = [float(row["tumour"]) for row in csv.DictReader(file)]
    assert averaged == pytest.approx([float(row["tumour"]) for row in rows], abs=1e-5)


def test_two_workers_write_the_bytes_of_one_process(run: Run, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    options = "--batch-size", 2, "--output"
    assert run("classify", WEIGHTS, images, *options, "a.csv", "--threads", 1)[0] == 0
    for name in ENVIRONMENT:  # which the command sets for its workers
        monkeypatch.setenv(name, "1")
    assert run("classify", WEIGHTS, images, *options, "b.csv", "--workers", 2) == (0, "b.csv: 9 images\n", "")
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes()


def test_the_mean_over_angles_between(run: Run, images: Path) -> None:
    assert run("classify", STEADY, images, "--rotations", 8, "--output", "a.csv")[0] == 0
    with open("a.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    predictor = load(STEADY)
    batch = torch.stack([predictor.preprocess(path) for path in sorted(images.iterdir())])
    with torch.no_grad():
        logits = (predictor.network(batch) + predictor.network(resampled(batch, 45))) / 2
    expected = logits.softmax(1)[:, 1].tolist()
    assert [float(row["tumour"]) for row in rows] == pytest.approx(expected, abs=1e-5)
    assert max(expected[:8]) - min(expected[:8]) < 1e-5
    assert all(float(row["ood_score"]) > 0 for row in rows)
    for options, sentence in (
        (("--rotations", 6), "rotations=6 must be a multiple of 4, the exact ones of d4, such as 8"),
        (("--rotations", 8, "--symmetry", "averaged", "--group", "d1"), "rotations=8 is for a network that is exact"),
    ):
        code, _, err = run("classify", STEADY, images, *options)
        assert code == 2
        assert sentence in err


def test_the_numbers_of_a_batch_are_bounded(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    class Counting(nn.Flatten):
        def forward(self, x: Tensor) -> Tensor:
            sizes.append(len(x))
            return super().forward(x)

    prepare, paths = Prepare(8, (0.5,) * 3, (0.5,) * 3), sorted(images.iterdir())
    for most, expected in ((10 * 3 * 8 * 8, [9]), (4 * 3 * 8 * 8, [4, 4, 1]), (1, [1] * 9)):
        monkeypatch.setattr("gcsa.images.prepare.MOST_NUMBERS", most)
        with Batch(
            paths, folder.ImageWork(SimpleNamespace(preprocess=prepare), Counting(), 16, {}), None
        ) as all_of_them:
            outcome = all_of_them.do()
            names, rows = folder.collect(all_of_them, prepare)
        assert (sizes, len(names), len(rows), outcome.failed) == (expected, 9, 9, 0)
        sizes.clear()


def test_what_cannot_be_read_is_listed(run: Run, images: Path) -> None:
    (images / "0.png").write_text("no image")
    code, out, err = run("classify", WEIGHTS, images, "--output", "a.csv")
    assert (code, out) == (1, "a.csv: 8 images\n")
    assert err.startswith(f"{images / '0.png'} cannot be read as an image")
    assert err.endswith("\n1 of 9 could not be classified\n")


def test_an_image_that_it_was_not_trained_for(run: Run, images: Path) -> None:
    """A column tells the OOD score, and a line on stderr names the image."""
    cup = images.parent / "cup.png"
    Image.fromarray(coffee()).save(cup)
    code, _, err = run("classify", WEIGHTS, images / "0.png", cup, "--output", "a.csv")
    assert code == 0
    assert err.splitlines()[-1].startswith(
        f"warning: 1 of 2 images are unlike those of training (OOD score above 1): {cup} ("
    )
    with open("a.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["file", "label", "confidence", "ood_score", "normal", "tumour"]
    assert float(rows[0]["ood_score"]) < 1 < float(rows[1]["ood_score"])


def test_another_scale_is_told(run: Run, tmp_path: Path) -> None:
    """Patches that say how large their pixels are, and that it is not what the weights see."""
    for name, mpp in (("same", 0.972), ("finer", 0.227)):
        pixels = np.random.default_rng(0).integers(0, 255, (96, 96, 3), np.uint8)
        options = {"PhysicalSizeX": mpp, "PhysicalSizeXUnit": "µm", "PhysicalSizeY": mpp, "PhysicalSizeYUnit": "µm"}
        tifffile.imwrite(tmp_path / f"{name}.ome.tif", pixels, ome=True, metadata={"axes": "YXS", **options})
    status, _, err = run("classify", "gcsa_pooled_small.pcam", tmp_path / "same.ome.tif")
    assert (status, "another scale" in err) == (0, False)
    status, _, err = run("classify", "gcsa_pooled_small.pcam", tmp_path)
    assert status == 0
    assert "warning: 1 of 2 images state another scale than the weights see, 0.972 micrometres a pixel" in err
    assert "finer.ome.tif, 0.227" in err
