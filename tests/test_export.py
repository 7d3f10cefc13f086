"""Folding and exporting: one small model of each family, and every registered name where minutes do not matter."""

import copy
import io
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from peft import get_peft_model
from torch import Tensor, nn

from gcsa.adapters import lora_config
from gcsa.commands.export import main
from gcsa.export import FORMATS, FoldedConv2d, export, fold, formats
from gcsa.layers.steerable import SteerableConv2d
from gcsa.ocr.load import load_recognizer
from gcsa.ocr.recognizers.ctc import CTCRecognizer
from gcsa.testing import equivariance_error, randomize

SMALL: dict[str, dict[str, Any]] = {
    "gcsa_tiny": dict(fields=4, depth=1, group="c4"),
    "gcsa_linear_tiny": dict(fields=4, depth=1, group="d2"),
    "gcsa_pyramid_tiny": dict(fields=(4, 4), depths=(1, 1), heads=(1, 1), radii=(1, None)),
    "gcnn_tiny": dict(fields=4, depth=1, padding_mode="circular"),
    "gsa_tiny": dict(fields=4, depth=1),
    "performer_tiny": dict(dim=8, depth=1, features=8),
}
torchscript = pytest.mark.filterwarnings("ignore:.*torch.jit")  # deprecated by torch, still part of timm's contract
warns = pytest.mark.filterwarnings("ignore")  # torch's exporters and compilers warn of their own deprecations
every_family = pytest.mark.parametrize("name", SMALL)


def create(name: str, **kwargs: Any) -> nn.Module:
    return randomize(timm.create_model(name, in_chans=1, num_classes=3, **{**SMALL[name], **kwargs}).eval())


def recognizer() -> CTCRecognizer:
    return CTCRecognizer("ab", height=8, hidden=8, fields=4, depth=1, heads=1).eval()


def images(batch: int = 2) -> Tensor:
    return torch.randn(batch, 1, 16, 16)


def steerable(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if isinstance(module, SteerableConv2d)]


@every_family
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_folded_model_is_the_same_function(name: str, dtype: torch.dtype, tolerance: float) -> None:
    model = create(name).to(dtype)
    before = copy.deepcopy(model.state_dict())
    folded = fold(model)
    x = images().to(dtype)
    assert torch.allclose(folded(x), model(x), rtol=0, atol=tolerance)
    assert steerable(folded) == []
    assert list(model.state_dict()) == list(before)


@pytest.mark.parametrize(
    ("arguments", "shape"),
    [
        (dict(kernel_size=5, lift=True), (2, 3, 6, 6)),
        (dict(kernel_size=4, stride=2), (2, 6, 6, 4, 3)),
        (dict(kernel_size=3, depthwise=True, bias=False), (2, 6, 6, 4, 3)),
        (dict(kernel_size=3, padding_mode="circular"), (2, 6, 6, 4, 3)),
        (dict(kernel_size=1), (2, 6, 6, 4, 3)),
    ],
)
def test_folded_layer_is_the_same_function(arguments: dict[str, Any], shape: tuple[int, ...]) -> None:
    conv = randomize(SteerableConv2d(3, 3, group="c4", dtype=torch.float64, **arguments))
    x = torch.randn(shape, dtype=torch.float64)
    assert torch.allclose(fold(conv)(x), conv(x), rtol=0, atol=1e-12)


def test_folded_layer_refuses_sizes_that_are_not_exact() -> None:
    conv = fold(SteerableConv2d(3, 3, 4, "c4", stride=2))
    with pytest.raises(ValueError, match="breaks exact equivariance"):
        conv(torch.randn(1, 5, 5, 4, 3))


def test_folded_recognizer_reads_the_same() -> None:
    model = recognizer()
    folded = fold(model)
    x = torch.rand(2, 1, 8, 32)
    assert steerable(folded) == []
    assert torch.allclose(folded(x), model(x), atol=1e-5)
    assert folded.read(x, "any")[0].text == model.read(x, "any")[0].text


def test_folded_model_is_pickled_copied_and_loaded() -> None:
    folded, x = fold(create("gcsa_tiny")), images()
    buffer = io.BytesIO()
    torch.save(folded, buffer)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer, weights_only=False)(x), folded(x))
    other = fold(create("gcsa_tiny"))
    nn.init.zeros_(other.stem.convs[0].weight)
    other.load_state_dict(folded.state_dict())
    assert torch.equal(other(x), folded(x))


def test_folding_twice_is_folding_once() -> None:
    once = fold(create("gcsa_tiny"))
    twice = fold(once)
    x = images()
    assert torch.equal(twice(x), once(x))
    assert twice is not once


def test_folded_model_keeps_the_methods_of_timm() -> None:
    model = create("gcsa_tiny")
    folded, x = fold(model), images()
    assert torch.allclose(folded.forward_features(x), model.forward_features(x), atol=1e-5)
    assert torch.allclose(folded.forward_intermediates(x)[0], model.forward_intermediates(x)[0], atol=1e-5)
    cfg = folded.default_cfg
    assert {cfg["first_conv"] + ".weight", cfg["classifier"] + ".weight"} <= folded.state_dict().keys()
    folded.set_grad_checkpointing()
    folded.reset_classifier(5)
    out = folded.train()(x)
    assert out.shape == (2, 5)
    out.sum().backward()
    assert all(p.grad is not None for p in folded.parameters())


def test_training_leaves_equivariance() -> None:
    """A negative control: a folded model is equivariant by its weights only."""
    conv = SteerableConv2d(2, 2, 3, "c4", dtype=torch.float64)
    folded = fold(conv)
    assert isinstance(folded, FoldedConv2d)
    x = torch.randn(2, 5, 5, 4, 2, dtype=torch.float64)
    assert equivariance_error(folded, x, "c4", 1) < 1e-12
    with torch.no_grad():
        folded.weight.add_(torch.randn_like(folded.weight))
    assert equivariance_error(folded, x, "c4", 1) > 0.1


def test_frozen_weights_and_modes_are_kept() -> None:
    model = create("gcsa_tiny").requires_grad_(False)
    model.head.train()
    folded = fold(model)
    assert not any(p.requires_grad for p in folded.parameters())
    assert [m.training for m in folded.modules()] == [m.training for m in model.modules()]


def test_adapter_must_be_merged_first() -> None:
    model = create("gcsa_tiny")
    adapted = get_peft_model(model, lora_config(model, rank=1))
    for wrapped in (adapted, adapted.get_base_model()):
        with pytest.raises(ValueError, match="merge_and_unload"):
            fold(wrapped)
    merged = adapted.merge_and_unload()
    x = images()
    assert torch.allclose(fold(merged)(x), merged(x), atol=1e-5)


@every_family
def test_torch_export_takes_any_batch_and_size(name: str, tmp_path: Path) -> None:
    model, file = create(name), tmp_path / "m.pt2"
    assert export(model, file, "pt2", (1, 40, 40), any_size=True) <= 1e-5
    assert [path.name for path in tmp_path.iterdir()] == ["m.pt2"]
    # Not a square, and one that the tiles of neighbourhoods fill, while those traced were not.
    run, x = torch.export.load(file).module(), torch.randn(4, 1, 48, 32)
    assert torch.allclose(run(x), model(x), atol=1e-5)


def test_torch_export_refuses_sizes_that_are_not_exact(tmp_path: Path) -> None:
    export(create("gcsa_tiny"), tmp_path / "m.pt2", "pt2", (1, 16, 16), any_size=True)
    with pytest.raises((RuntimeError, AssertionError)):
        torch.export.load(tmp_path / "m.pt2").module()(torch.randn(2, 1, 17, 16))


@torchscript
@pytest.mark.parametrize("format", ["torchscript", "folded"])
def test_other_formats(format: str, tmp_path: Path) -> None:
    assert export(create("gcsa_tiny"), tmp_path / "model", format, (1, 16, 16), any_size=True) <= 1e-5


@warns
def test_onnx_takes_any_batch_and_size(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model, file = create("gcsa_tiny"), tmp_path / "m.onnx"
    assert export(model, file, "onnx", (1, 16, 16), any_size=True) <= 1e-5
    session, x = runtime.InferenceSession(file), torch.randn(1, 1, 32, 24)
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert torch.allclose(torch.from_numpy(found), model(x), atol=1e-5)


@warns
@pytest.mark.parametrize("format", ["pt2", "onnx", "torchscript"])
def test_recognizer_takes_lines_of_any_length(format: str, tmp_path: Path) -> None:
    """Longer than traced: `export` compares them on another length."""
    pytest.importorskip("onnxruntime")
    assert export(recognizer(), tmp_path / "m", format, (1, 8, 32), any_size=True) <= 1e-5


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
    monkeypatch.setitem(FORMATS, "folded", lambda model, x, any_size, part: lambda image: model(image) + 1)
    with pytest.raises(ValueError, match="was not written"):
        export(create("gcsa_tiny"), file, "folded", (1, 16, 16))
    assert file.read_text() == "older"
    assert list(tmp_path.iterdir()) == [file]


def test_unknown_format() -> None:
    with pytest.raises(ValueError, match="unknown format 'tflite': choose one of onnx"):
        export(create("gcsa_tiny"), "m", "tflite", (1, 16, 16))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(size=(1, 17, 16)), "GCSA takes no images of 1 x 17 x 16: .* resize 17 to 16 or 20"),
        (dict(size=(1, 0, 16)), "images of 1 x 0 x 16 are empty"),
        (dict(size=(3, 16, 16)), "GCSA takes no images of 3 x 16 x 16: "),
        (dict(file="missing/m"), "there is no folder .*missing to write m into: create it first"),
        (dict(file="."), "is a folder: name a file"),
        (dict(format="aoti"), "the name of an AOTInductor package must end in .pt2: m does not"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    given = {"file": "m", "format": "folded", "size": (1, 16, 16), **arguments}
    with pytest.raises(ValueError, match=message):
        export(create("gcsa_tiny"), tmp_path / given.pop("file"), **given)
    assert list(tmp_path.iterdir()) == []


def test_recognizer_of_another_height(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="reads lines 8 pixels high, not 16"):
        export(recognizer(), tmp_path / "m", "folded", (1, 16, 32))


def test_one_size_is_not_any_size(tmp_path: Path) -> None:
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1)
    with pytest.raises(ValueError, match="takes no images of 3 x 33 x 33, so any_size is not for it"):
        export(model, tmp_path / "m", "pt2", (3, 32, 32), any_size=True)


def test_read_only_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile._os, "mkdir", refuse)  # for root may write everywhere
    with pytest.raises(ValueError, match=r"takes no files \(Permission denied\): write elsewhere"):
        export(create("gcsa_tiny"), tmp_path / "m", "folded", (1, 16, 16))


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_missing_package(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"ONNX needs the package '{package}': install gcsa\[export\]"):
        export(create("gcsa_tiny"), tmp_path / "m", "onnx", (1, 16, 16))
    assert list(tmp_path.iterdir()) == []


def test_interrupted_export_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(model: nn.Module, image: Tensor, any_size: bool, file: Path) -> None:
        file.write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setitem(FORMATS, "folded", interrupt)
    with pytest.raises(KeyboardInterrupt):
        export(create("gcsa_tiny"), tmp_path / "m", "folded", (1, 16, 16))
    assert list(tmp_path.iterdir()) == []


def test_parity_error_of_nan() -> None:
    assert formats.parity_error(nn.Identity(), lambda x: x * float("nan"), images()) == float("inf")


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, file = recognizer().save_pretrained(tmp_path / "lines"), tmp_path / "m.pt"
    assert main([str(folder), "--format", "folded", "--output", str(file)]) == 0
    x = torch.rand(1, 1, 8, 16)
    assert torch.allclose(torch.load(file, weights_only=False)(x), load_recognizer(folder)(x), atol=1e-5)
    assert "differs from the model by" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gcsa_tinny"], "unknown model 'gcsa_tinny'"),
        (["missing.ckpt"], "there is no checkpoint missing.ckpt"),
        ([__file__], "unknown model"),
        (["local-dir:missing"], "there is no"),
        (["missing.ckpt", "--group", "c4"], "--group c4 is for a name in timm"),
        (["gcsa_tiny", "--size", "15", "15"], "15"),
    ],
)
def test_command_line_errors(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--format", "folded", "--output", str(tmp_path / "m")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_checkpoint_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, other = tmp_path / "text.ckpt", tmp_path / "other.ckpt"
    text.write_text("not a checkpoint")
    torch.save({"weights": 1}, other)
    for file in (text, other):
        assert main([str(file), "--format", "folded", "--output", str(tmp_path / "m")]) == 2
        error = capsys.readouterr().err
        assert "is damaged or not a checkpoint of train.py" in error
        assert error.count("\n") == 1


@pytest.mark.slow  # builds and exports every registered model, some of tens of millions of parameters
@pytest.mark.parametrize("name", timm.list_models(["gcsa*", "gcnn*", "gsa*", "z2sa*", "performer*"]))
def test_every_registered_model(name: str, tmp_path: Path) -> None:
    model = timm.create_model(name).eval()
    side = max(4 * getattr(model, "multiple", 4), 16)
    size = (model.default_cfg["input_size"][0], side, side)
    for format in ("folded", "pt2"):
        assert export(model, tmp_path / format, format, size) <= 1e-4
