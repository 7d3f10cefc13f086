"""A segmenter as a package of bioimage.io (model description 0.5), which bioimageio.core, ilastik and others run.

https://github.com/bioimage-io/spec-bioimage-io: a zip file of a description, ONNX, and a test image with its result.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from gcsa._utils.arrays import Array
from gcsa._utils.atomic import check_writable, replacing
from gcsa._utils.errors import UserError
from gcsa._utils.published import published
from gcsa.export.formats import export, stride_of
from gcsa.tasks import make_predictor
from gcsa.tasks.segmentation.stars import SHORTEST, check_installed
from gcsa.weights import read

FORMAT_VERSION = "0.5.12"
SIDE = 256
"""Pixels a side of the test image."""
DISCS = 24
"""Objects in it."""
LICENSES = {
    name.lower(): name for name in ("Apache-2.0", "MIT", "BSD-3-Clause", "CC0-1.0", "CC-BY-4.0", "CC-BY-NC-4.0")
}
"""Names of SPDX, which the description wants as they are written there."""
EPSILON = 1e-6
"""Is added to the range of an image before it divides."""


class Probabilities(nn.Module):
    """A segmenter whose maps are probabilities: (B, K, H, W) of each class; or (B, H, W, 1 + R) of an object, with the distances in
    pixels behind it, as bioimageio.core's postprocessing of StarDist wants them."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network, self.instances = network, network.output == "instances"
        self.size_divisor = network.size_divisor

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.network(images)
        if not self.instances:
            return maps.softmax(1)
        return torch.cat([maps[:, :1].sigmoid(), maps[:, 1:].clamp_min(SHORTEST)], 1).permute(0, 2, 3, 1)


def write_bioimageio(source: str, file: str | Path) -> float:
    """Writes the segmenter in `source` (see `gcsa.weights.read`) into a new zip file, whole or not at all; returns the `parity_error`
    of its ONNX.

    Objects are found by the postprocessing of StarDist, at the thresholds of the weights. Raises UserError for weights of another
    task and for another suffix, and as `export` and `check_writable`.
    """
    file = Path(file)
    if file.suffix != ".zip":
        raise UserError(f"the name of a package of bioimage.io must end in .zip: {file.name} does not", "export.suffix")
    check_writable(file)
    weights = read(source)
    if weights.task != "segmentation":
        raise UserError(f"--format bioimageio is for segmenters, and {source} is none", "format.segmenter")
    predictor: Any = make_predictor(weights)
    model = Probabilities(predictor.network).eval()
    if model.instances:
        check_installed()
    image = sketch(predictor.diameter or 20.0, predictor.network.in_chans)
    low, high = np.percentile(image, (predictor.pmin, predictor.pmax))
    scaled = ((image - low) / (high - low + EPSILON)).astype(np.float32)
    with torch.no_grad():
        maps = model(torch.from_numpy(scaled)).numpy()
    result = stardist_labels(maps[0], predictor)[None, ..., None] if model.instances else maps
    card = (published(source) or Path(source)) / "README.md"
    text = card.read_text(encoding="utf-8") if card.is_file() else f"# {weights.architecture}\n\nA segmenter of gcsa.\n"
    with replacing(file) as part:
        onnx = part.with_suffix(".onnx")
        error = export(model, onnx, "onnx", (predictor.network.in_chans, SIDE, SIDE), any_size=True)
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("rdf.yaml", json.dumps(describe(predictor, Path(source).name, weights.about), indent=2))
            archive.write(onnx, "weights.onnx")
            archive.writestr("README.md", text)
            for name, values in (("test_input.npy", image), ("test_output.npy", result)):
                archive.writestr(name, array_bytes(values))
            archive.writestr("cover.png", picture_bytes(image))
        onnx.unlink()
    return error


def sketch(diameter: float, channels: int) -> Array:
    """An image float32 (1, channels, SIDE, SIDE) from 0 to 255 of bright discs on a dark ground, with noise."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:SIDE, :SIDE]
    picture = np.full((SIDE, SIDE), 20.0)
    for row, column in rng.uniform(0, SIDE, (DISCS, 2)):
        radius = diameter / 2 * rng.uniform(0.7, 1.3)
        picture[np.hypot(y - row, x - column) < radius] = rng.uniform(100, 200)
    noisy = (picture + rng.normal(0, 5, picture.shape)).clip(0, 255).round().astype(np.float32)
    return np.repeat(noisy[None, None], channels, axis=1)


def stardist_labels(maps: Array, predictor: Any) -> Array:
    """The label map int32 (H, W) that StarDist's postprocessing makes of probability and distances (H, W, 1 + R)."""
    from stardist import non_maximum_suppression, polygons_to_label

    points, scores, distances = non_maximum_suppression(
        np.ascontiguousarray(maps[..., 1:]),
        np.ascontiguousarray(maps[..., 0]),
        grid=(1, 1),
        b=0,
        prob_thresh=predictor.prob_thresh,
        nms_thresh=predictor.nms_thresh,
    )
    labels: Array = polygons_to_label(distances, points, prob=scores, shape=maps.shape[:2])
    return labels


def describe(predictor: Any, name: str, about: dict[str, Any]) -> dict[str, Any]:
    """The description of the package, without what bioimage.io fills in."""
    network = predictor.network
    step, _ = stride_of(network)
    least = step * -(-max(network.min_size, SIDE // 2) // step)
    colours = ["red", "green", "blue"] if network.in_chans == 3 else [f"channel{i}" for i in range(network.in_chans)]
    sides = ("y", "x")
    scale = {
        "axes": ["channel", *sides],
        "min_percentile": predictor.pmin,
        "max_percentile": predictor.pmax,
        "eps": EPSILON,
    }
    output: dict[str, Any] = {
        "id": "labels" if network.output == "instances" else "classes",
        "test_tensor": {"source": "test_output.npy"},
    }
    spatial = [{"type": "space", "id": side, "size": {"tensor_id": "image", "axis_id": side}} for side in sides]
    if network.output == "instances":
        objects = {
            "grid": [1, 1],
            "b": 0,
            "n_rays": network.rays,
            "prob_threshold": predictor.prob_thresh,
            "nms_threshold": predictor.nms_thresh,
        }
        output["axes"] = [{"type": "batch"}, *spatial, {"type": "channel", "channel_names": ["label"]}]
        output["data"] = {"type": "int32"}
        output["postprocessing"] = [{"id": "stardist_postprocessing", "kwargs": objects}]
    else:
        classes = [f"class{i}" for i in range(network.num_classes)]
        output["axes"] = [{"type": "batch"}, {"type": "channel", "channel_names": classes}, *spatial]
    license = LICENSES.get(str(about.get("license", "")).lower())
    return {
        "type": "model",
        "format_version": FORMAT_VERSION,
        "name": f"gcsa {re.sub(r'[^0-9A-Za-z_-]', ' ', name)}"[:128],
        "description": f"{network.name} of gcsa: label maps that rotate and reflect with the image.",
        "authors": [{"name": "The gcsa authors"}],
        **({} if license is None else {"license": license}),
        "documentation": {"source": "README.md"},
        "covers": [{"source": "cover.png"}],
        "tags": ["segmentation", "rotation-equivariance", network.output],
        "inputs": [
            {
                "id": "image",
                "axes": [
                    {"type": "batch"},
                    {"type": "channel", "channel_names": colours},
                    *({"type": "space", "id": side, "size": {"min": least, "step": step}} for side in sides),
                ],
                "data": {"type": "float32"},
                "preprocessing": [{"id": "scale_range", "kwargs": scale}],
                "test_tensor": {"source": "test_input.npy"},
            }
        ],
        "outputs": [output],
        "weights": {"onnx": {"source": "weights.onnx", "opset_version": 18}},
    }


def array_bytes(values: Array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(values))
    return buffer.getvalue()


def picture_bytes(image: Array) -> bytes:
    """The first channel of an image (1, C, H, W) as PNG."""
    buffer = io.BytesIO()
    Image.fromarray(image[0, 0].astype(np.uint8)).save(buffer, format="PNG")
    return buffer.getvalue()
