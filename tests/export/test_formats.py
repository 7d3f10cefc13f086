"""Formats: what is written runs alone, on other sizes than traced, and appears whole or not at all."""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

from gcsa.export import export, formats
from tests.errors import raises
from tests.limits import largest_file

from .small import SMALL, create, images, recognizer

torchscript = pytest.mark.filterwarnings("ignore:.*torch.jit")  # deprecated by torch, still part of timm's contract
warns = pytest.mark.filterwarnings("ignore")  # torch's exporters and compilers warn of their own deprecations


def check_program(model: nn.Module, file: Path) -> Callable[[Tensor], Tensor]:
    """The program, as `export` reads it back."""
    read: list[formats.Run] = []

    def write(*arguments: Any) -> formats.Run:
        read.append(formats.write_pt2(*arguments))
        return read[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(formats.WRITERS, "pt2", write)
        assert export(model, file, "pt2", (1, 40, 40), any_size=True) <= 1e-5
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    # Not a square, and one that the tiles of neighbourhoods fill, while those traced were not.
    x = torch.randn(4, 1, 48, 32)
    assert torch.allclose(read[0](x), model(x), atol=1e-5)
    return read[0]


@pytest.mark.parametrize(("name", "options"), [("gcsa_tiny", dict(radius=1)), ("gsa_tiny", {})])
def test_torch_export_takes_any_batch_and_exact_sizes(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    run = check_program(create(name, **options), tmp_path / "m.pt2")
    with pytest.raises((RuntimeError, AssertionError)):
        run(torch.randn(2, 1, 41, 40))


@pytest.mark.slow  # a minute and a half; what these families share with those above is exported there
@pytest.mark.parametrize("name", sorted(SMALL.keys() - {"gsa_tiny"}))
def test_torch_export_of_every_family(name: str, tmp_path: Path) -> None:
    check_program(create(name), tmp_path / "m.pt2")


@torchscript
@pytest.mark.parametrize("format", ["torchscript", "folded"])
def test_other_formats(format: str, tmp_path: Path) -> None:
    assert export(create("gcsa_tiny"), tmp_path / "model", format, (1, 16, 16), any_size=True) <= 1e-5


@warns
@pytest.mark.slow  # as long as the recogniser below, which goes the same way
def test_onnx_takes_any_batch_and_size(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model, file = create("gcsa_tiny"), tmp_path / "m.onnx"
    assert export(model, file, "onnx", (1, 16, 16), any_size=True) <= 1e-5
    session, x = runtime.InferenceSession(file), torch.randn(1, 1, 32, 24)
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert torch.allclose(torch.from_numpy(found), model(x), atol=1e-5)


@warns
def test_onnx_keeps_the_layout_of_its_convolutions(tmp_path: Path) -> None:
    """Between the convolutions of a stem with batch norms stands no transpose, and no norm."""
    onnx = pytest.importorskip("onnx")
    stem = dict(stem_norm="batch", stem_strides=[1, 2, 2], stem_fields=(4, 4), low_pass=True)
    export(create("gcsa_pooled_small", **stem), tmp_path / "m.onnx", "onnx", (1, 16, 16))
    kinds = [node.op_type for node in onnx.load(tmp_path / "m.onnx").graph.node]
    convolutions = [place for place, kind in enumerate(kinds) if kind == "Conv"]
    between = kinds[convolutions[0] + 1 : convolutions[4]]  # three of the stem, and two low-pass filters
    assert sorted(set(between)) == ["Conv", "Gelu"]
    assert "BatchNormalization" not in kinds


@warns
@pytest.mark.parametrize("format", ["onnx", "torchscript"])
def test_recognizer_takes_lines_of_any_length(format: str, tmp_path: Path) -> None:
    """Longer than traced: `export` compares them on another length."""
    pytest.importorskip("onnxruntime")
    lines = recognizer(recurrent=4)
    torch.nn.init.xavier_uniform_(lines.head.recurrent.out.weight)  # which is 0 in a fresh network
    assert export(lines, tmp_path / "m", format, (1, 8, 32), any_size=True) <= 1e-5


def test_an_lstm_has_one_length_as_pt2(tmp_path: Path) -> None:
    with raises("export.failed"):
        export(recognizer(recurrent=4), tmp_path / "m.pt2", "pt2", (1, 8, 32), any_size=True)
    assert list(tmp_path.iterdir()) == []


@warns
@pytest.mark.slow  # the C++ compiler of AOTInductor takes most of a minute
def test_compiled_package(tmp_path: Path) -> None:
    model, file = create("gcsa_tiny"), tmp_path / "m.pt2"
    assert export(model, file, "aoti", (1, 16, 16), any_size=True) <= 1e-5
    run, x = torch._inductor.aoti_load_package(str(file)), torch.randn(1, 1, 32, 24)
    assert torch.allclose(run(x), model(x), atol=1e-5)
    assert [path.name for path in tmp_path.iterdir()] == ["m.pt2"]


def test_wrong_export_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "m"
    file.write_text("older")
    monkeypatch.setitem(formats.WRITERS, "folded", lambda model, x, any_size, part: lambda image: model(image) + 1)
    with raises("export.tolerance"):
        export(create("gcsa_tiny"), file, "folded", (1, 16, 16))
    assert file.read_text() == "older"
    assert list(tmp_path.iterdir()) == [file]


@torchscript
@pytest.mark.parametrize("format", ["folded", "pt2", "torchscript"])
def test_a_full_disk_leaves_the_older_file(format: str, tmp_path: Path) -> None:
    """A limit on the size of files stands in for the full disk, where torch's own writer ended the process."""
    file = tmp_path / "m.pt2"
    file.write_text("older")
    with largest_file(20_000), pytest.raises(OSError, match="File too large"):
        export(create("gcsa_tiny"), file, format, (1, 16, 16))
    assert file.read_text() == "older"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(size=(1, 17, 16)), "GCSA takes no images of 1 x 17 x 16: .* resize 17 to 16 or 20"),
        (dict(size=(1, 0, 16)), "images of 1 x 0 x 16 are empty"),
        (dict(size=(3, 16, 16)), "GCSA takes no images of 3 x 16 x 16: "),
        (dict(file="missing/m"), "there is no folder .*missing to write m into: create it first"),
        (dict(file="."), "is a folder: name a file"),
        (dict(format="tflite"), "unknown format 'tflite': choose one of onnx"),
        (dict(format="aoti"), "the name of an AOTInductor package must end in .pt2: m does not"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    given = {"file": "m", "format": "folded", "size": (1, 16, 16), **arguments}
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        export(create("gcsa_tiny"), tmp_path / given.pop("file"), **given)
    assert list(tmp_path.iterdir()) == []


def test_models_that_do_not_fit(tmp_path: Path) -> None:
    for model, size, key in (
        (
            create("gcsa_tiny", features_only=True),
            (1, 16, 16),
            "export.several_outputs",
        ),
        (recognizer(), (1, 16, 32), "export.height"),
        (
            timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1),
            (3, 32, 32),
            "export.shape",
        ),
    ):
        with raises(key):
            export(model, tmp_path / "m", "pt2", size, any_size=True)


def test_read_only_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile._os, "mkdir", refuse)  # for root may write everywhere
    with raises("folder.not_writable"):
        export(create("gcsa_tiny"), tmp_path / "m", "folded", (1, 16, 16))


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_missing_package(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with raises("onnx.missing"):
        export(create("gcsa_tiny"), tmp_path / "m", "onnx", (1, 16, 16))
    assert list(tmp_path.iterdir()) == []


def test_interrupted_export_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(model: nn.Module, image: Tensor, any_size: bool, file: Path) -> None:
        file.write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setitem(formats.WRITERS, "folded", interrupt)
    with pytest.raises(KeyboardInterrupt):
        export(create("gcsa_tiny"), tmp_path / "m", "folded", (1, 16, 16))
    assert list(tmp_path.iterdir()) == []


def test_export_leaves_the_model_in_training(tmp_path: Path) -> None:
    model = create("gcsa_tiny").train()
    export(model, tmp_path / "m", "folded", (1, 16, 16))
    assert all(module.training for module in model.modules())


def test_parity_error_of_nan() -> None:
    assert formats.parity_error(nn.Identity(), lambda x: x * float("nan"), images()) == float("inf")


NAMES = timm.list_models(["gcsa*", "gcnn*", "gsa*", "z2sa*", "performer*"])


@pytest.mark.slow  # builds and exports registered models, some of tens of millions of parameters
@pytest.mark.parametrize("name", NAMES)
def test_every_registered_model(name: str, tmp_path: Path) -> None:
    model = timm.create_model(name).eval()
    side = max(4 * getattr(model, "size_divisor", 4), 16)
    size = (model.default_cfg["input_size"][0], side, side)
    for format in ("folded", "pt2"):
        assert export(model, tmp_path / format, format, size) <= 1e-4
