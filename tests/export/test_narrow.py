"""ONNX files of narrow numbers are small, near the model, and as equivariant as it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from gcsa.export import export
from gcsa.export.narrow import quantized
from gcsa.layers.conv import SteerableConv2d
from gcsa.models.folding import fold
from gcsa.tasks.calibration import MOST, read_images
from tests.errors import raises

from .small import create, recognizer

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.filterwarnings("ignore")  # torch's exporter warns of its own deprecations


def run(file: Path, x: Tensor) -> Tensor:
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {session.get_inputs()[0].name: x.numpy()})[0])


def turned_copies(filters: Tensor) -> bool:
    """Whether the filters (N * O, 1, k, k) of a lifting convolution of c4 are rotated copies of one another."""
    first, *others = filters.unflatten(0, (4, -1))
    return all(torch.equal(filter, first.rot90(g, (2, 3))) for g, filter in enumerate(others, 1))


def test_int8_keeps_the_symmetry(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, file = create("gcsa_tiny", fields=16), tmp_path / "m.onnx"
    images = torch.randn(16, 1, 16, 16)
    assert 1e-5 < export(model, file, "onnx-int8", (1, 16, 16), any_size=True, images=images) < 0.1
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]

    weights = {
        weight.name: torch.from_numpy(onnx.numpy_helper.to_array(weight).copy())
        for weight in onnx.load(file).graph.initializer
    }
    (lifting,) = [
        values
        for values in weights.values()
        if values.dtype == torch.int8 and values.shape[1:2] == (1,) and values.shape[2] == 5
    ]
    assert turned_copies(lifting)
    assert not turned_copies(lifting + torch.randint(2, lifting.shape, dtype=torch.int8)), "nothing could fail"

    x = torch.randn(4, 1, 32, 24)  # of another size
    expected, found = model(x), run(file, x)
    assert torch.allclose(found, expected, atol=0.1 * float(expected.abs().max()))
    for g in range(1, 4):
        assert torch.allclose(run(file, x.rot90(g, (2, 3))), found, atol=0.01 * float(expected.abs().max()))


def test_bfloat16_halves_the_file(tmp_path: Path) -> None:
    model, x, file = create("gcsa_tiny", fields=16), torch.randn(4, 1, 16, 16), tmp_path / "m.onnx"
    assert 1e-5 < export(model, file, "onnx-bf16", (1, 16, 16)) < 0.05
    wide = 4 * sum(tensor.numel() for tensor in fold(model, "direct").state_dict().values())
    assert file.stat().st_size < 0.7 * wide
    found = run(file, x)
    for g in range(1, 4):
        assert torch.allclose(run(file, x.rot90(g, (2, 3))), found, atol=1e-5)


def test_the_classifier_and_the_attention_stay_wide() -> None:
    node, constant = onnx.helper.make_node, onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [1], [1.0])
    nodes = [
        node("Conv", ["x", "w"], ["a"], name="convolution"),
        node("MatMul", ["a", "a"], ["b"], name="attention"),
        node("MatMul", ["b", "w"], ["features"], name="random features"),
        node("Sub", ["features", "b"], ["less"]),
        node("Exp", ["less"], ["exponential"]),
        node("MatMul", ["b", "w"], ["c"], name="hidden"),
        node("Gemm", ["c", "w"], ["d"], name="classifier"),
    ]
    graph = onnx.helper.make_graph(nodes, "g", [], [], [constant])
    assert quantized(graph) == ["convolution", "hidden"]
    with raises("export.int8"):
        quantized(onnx.helper.make_graph(nodes[1:3], "g", [], [], [constant]))


def test_wide_layers_leave_the_irrep_basis() -> None:
    conv = SteerableConv2d(96, 96, kernel_size=1, group="c4")
    assert conv.in_irreps
    assert not fold(conv, "direct").in_irreps
    with raises("folding.twice"):
        fold(fold(conv), "direct")


@pytest.mark.parametrize(
    ("images", "key"),
    [
        (None, "export.calibration"),
        (torch.zeros(15, 1, 16, 16), "export.images"),
        (torch.zeros(16, 3, 16, 16), "export.images"),
    ],
)
def test_wrong_images(images: Tensor | None, key: str, tmp_path: Path) -> None:
    with raises(key):
        export(create("gcsa_tiny"), tmp_path / "m", "onnx-int8", (1, 16, 16), images=images)
    assert list(tmp_path.iterdir()) == []


def test_pictures_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    for i in range(MOST + 2):
        Image.new("RGB", (40, 32), (i % 256, 0, 0)).save(tmp_path / f"class/{i:03d}.png")
    model = create("gcsa_tiny")
    model.pretrained_cfg = {**model.pretrained_cfg, "mean": (0.5,), "std": (0.25,), "crop_pct": 1.0}
    images = read_images(tmp_path, model, (1, 16, 16))
    assert images.shape == (MOST // 2 + 1, 1, 16, 16), "every second one"
    assert images[0].unique().tolist() == [-2.0]
    (tmp_path / "class/._000.png").write_bytes(b"of macOS")
    assert torch.equal(read_images(tmp_path, model, (1, 16, 16)), images)
    with raises("weights.normalisation"):
        read_images(tmp_path, model, (3, 16, 16))
    with raises("images.none"):
        read_images(tmp_path / "none", model, (1, 16, 16))
    (tmp_path / "class/000.png").write_bytes(b"")
    with raises("image.unreadable"):
        read_images(tmp_path, model, (1, 16, 16))


def test_lines_of_a_folder(tmp_path: Path) -> None:
    ink = np.full((20, 60), 255, np.uint8)
    ink[5:15, 10:50] = 0
    Image.fromarray(ink).save(tmp_path / "line.png")
    wide, narrow = (read_images(tmp_path, recognizer(), (1, 8, width)) for width in (64, 16))
    assert (wide.shape, narrow.shape) == ((1, 1, 8, 64), (1, 1, 8, 16))
    assert torch.equal(wide[..., :16], narrow)
    assert narrow.max() > 0.9 > wide[..., 40:].max() == 0
