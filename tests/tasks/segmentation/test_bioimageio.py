"""A package of bioimage.io: what bioimageio.core says of it, where it is installed, and what it finds."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gcsa.cli.export import main
from gcsa.tasks.segmentation import SegmentationPredictor
from gcsa.tasks.segmentation.bioimageio import Probabilities, describe, sketch, stardist_labels, write_bioimageio
from gcsa.testing import randomize
from tests.errors import raises
from tests.export.small import recognizer

SIZES: dict[str, Any] = dict(fields=[2, 2], depths=[1, 1], num_heads=[1, 1], radii=[1, 1], stem_fields=[2], rays=8)


def made(**options: Any) -> SegmentationPredictor:
    torch.manual_seed(0)
    predictor = SegmentationPredictor.create("gcsa_unet_tiny", pmin=2.0, prob_thresh=0.4, **SIZES, **options)
    randomize(predictor.network).eval()
    return predictor


def test_the_objects_are_those_of_predict() -> None:
    """Up to the candidates: StarDist's postprocessing looks at every pixel, ours at maxima."""
    predictor, image = made(), sketch(20.0, 3)
    low, high = np.percentile(image, (2.0, 99.8))
    with torch.no_grad():
        maps = Probabilities(predictor.network)(torch.from_numpy(((image - low) / (high - low)).astype(np.float32)))
    labels = stardist_labels(maps[0].numpy(), predictor)
    own = predictor.predict(image[0].transpose(1, 2, 0)).labels
    assert labels.max() > 1
    assert ((own > 0) == (labels > 0)).mean() > 0.95
    (found,) = describe(predictor, "a.b", {})["outputs"][0]["postprocessing"]
    assert (found["kwargs"]["prob_threshold"], found["kwargs"]["n_rays"]) == (0.4, 8)


@pytest.mark.slow  # ONNX for any size takes half a minute of CPU
@pytest.mark.parametrize("output", ["instances", "classes"])
def test_a_package(output: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    predictor = made(**({"output": "classes", "num_classes": 3} if output == "classes" else {}))
    weights, file = predictor.save_pretrained(tmp_path / "weights", {"license": "apache-2.0"}), tmp_path / "m.zip"
    assert main([str(weights), "--format", "bioimageio", "--output", str(file)]) == 0
    with zipfile.ZipFile(file) as archive:
        about = json.loads(archive.read("rdf.yaml"))
        image, result = (np.load(io.BytesIO(archive.read(f"test_{name}.npy"))) for name in ("input", "output"))
        session = onnxruntime.InferenceSession(archive.read("weights.onnx"), providers=["CPUExecutionProvider"])
    low, high = np.percentile(image, (2.0, 99.8))
    (maps,) = session.run(None, {session.get_inputs()[0].name: ((image - low) / (high - low)).astype(np.float32)})
    assert about["license"] == "Apache-2.0"
    assert about["inputs"][0]["preprocessing"][0]["kwargs"]["min_percentile"] == 2.0
    if output == "classes":
        assert np.allclose(maps, result, atol=1e-3)
        assert np.allclose(maps.sum(1), 1, atol=1e-4)
    else:
        assert maps.shape == (1, 256, 256, 9)
        assert np.array_equal(stardist_labels(maps[0], predictor), result[0, ..., 0])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.zip", "weights"]


@pytest.mark.slow  # as above
@pytest.mark.filterwarnings("ignore")  # of bioimageio.core
def test_bioimageio_core_accepts_the_package(tmp_path: Path) -> None:
    """With bioimageio.core 0.11, whose description does not go with pydantic 2.14: pydantic<2.12."""
    core = pytest.importorskip("bioimageio.core")
    write_bioimageio(str(made().save_pretrained(tmp_path / "weights")), tmp_path / "m.zip")
    summary = core.test_description(tmp_path / "m.zip")
    assert summary.status == "passed", [error.msg for detail in summary.details for error in detail.errors]


def test_what_is_no_segmenter(tmp_path: Path) -> None:
    lines = recognizer().save_pretrained(tmp_path / "lines")
    with raises("format.segmenter"):
        write_bioimageio(str(lines), tmp_path / "m.zip")
    with raises("export.suffix"):
        write_bioimageio(str(lines), tmp_path / "m.pt")
    assert [path.name for path in tmp_path.iterdir()] == ["lines"]
