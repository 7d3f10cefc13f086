"""The command that writes a model in another format."""

import json
import os
import stat
from pathlib import Path

import pytest
import timm
import torch
from safetensors import safe_open
from torch import Tensor, nn

import gcsa
from gcsa.cli.export import main
from gcsa.export.formats import WRITERS
from gcsa.tasks.recognition.predict import empty_recognizer
from gcsa.weights import check_weights, fill, save_classifier

from ..export.small import recognizer


def test_a_recogniser_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, file = recognizer().save_pretrained(tmp_path / "lines"), tmp_path / "m.pt"
    assert main([str(folder), "--format", "folded", "--output", str(file)]) == 0
    x = torch.rand(1, 1, 8, 16)
    assert torch.allclose(torch.load(file, weights_only=False)(x), gcsa.load(folder).network(x), atol=1e-5)
    assert "differs from the model by" in capsys.readouterr().out


def test_a_recogniser_for_kraken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, file = recognizer().save_pretrained(tmp_path / "lines"), tmp_path / "m.safetensors"
    assert main([str(folder), "--format", "kraken", "--output", str(file)]) == 0
    assert f"ocr -m {file}" in capsys.readouterr().out
    with safe_open(file, "pt") as stored:
        (about,) = json.loads(stored.metadata()["kraken_meta"]).values()
        tensors = {name.removeprefix("gcsa.model."): stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    read = fill(lambda: empty_recognizer(weights), weights := check_weights("file", about["config"], tensors))
    x = torch.rand(1, 1, 8, 16)
    assert torch.equal(read(x), gcsa.load(folder).network(x))
    refused = {
        "is for recognisers of text lines": ["gcsa_tiny", "--output", str(tmp_path / "a.safetensors")],
        "must end in .safetensors": [str(folder), "--output", str(tmp_path / "a.pt")],
        "drop --size": [str(folder), "--any-size", "--output", str(tmp_path / "a.safetensors")],
    }
    for says, arguments in refused.items():
        with pytest.raises(SystemExit, match="2"):
            main([*arguments, "--format", "kraken"])
        assert says in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["lines", "m.safetensors"]


def test_published_weights_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["gcsa_tiny.rotmnist", "--format", "folded", "--output", "m.pt"]) == 0
    assert os.listdir() == ["m.pt"]


def test_an_onnx_file_says_what_a_program_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx = pytest.importorskip("onnx")

    def write(model: nn.Module, image: Tensor, any_size: bool, file: Path) -> nn.Module:
        """An empty graph: tests/export tests the real ones, which take seconds."""
        onnx.save(onnx.helper.make_model(onnx.helper.make_graph([], "empty", [], [])), file)
        return model

    monkeypatch.setitem(WRITERS, "onnx", write)
    lines = recognizer().save_pretrained(tmp_path / "lines")
    small = timm.create_model("gcsa_tiny", in_chans=1, num_classes=2, group="c4", fields=4, depth=1)
    about = {"input_size": (1, 28, 28), "mean": (0.5,), "std": (0.2,), "label_names": ["ä", "b"]}
    digits = save_classifier(small, tmp_path / "digits", **about)
    wanted = {
        digits: {"task": "classification", "group": "c4", "names": ["ä", "b"], "size": 28, "mean": [0.5], "std": [0.2]},
        lines: {"task": "recognition", "characters": gcsa.load(lines).network.charset.characters, "height": 8},
    }
    for folder, entries in wanted.items():
        file = tmp_path / f"{folder.name}.onnx"
        assert main([str(folder), "--format", "onnx", "--output", str(file)]) == 0
        found = {entry.key: json.loads(entry.value) for entry in onnx.load(file).metadata_props}
        assert entries.items() <= found.items()


def test_a_segmenter_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "m.pt"
    assert main(["gcsa_unet_tiny.nuclei", "--format", "folded", "--output", str(file), "--size", "64", "48"]) == 0
    assert float(capsys.readouterr().out.rpartition(" by ")[2]) < 1e-4
    x = torch.randn(2, 3, 64, 48)
    maps = gcsa.load("gcsa_unet_tiny.nuclei").network(x)
    assert torch.allclose(torch.load(file, weights_only=False)(x), maps, atol=1e-3)


def test_a_device_stays_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Root may replace /dev/full by a file, and once did; here it is a device of the test's own, where that is allowed."""
    device = tmp_path / "full"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 7))
    except PermissionError:
        device.symlink_to("/dev/full")
    with pytest.raises(SystemExit, match="2"):
        main(["gcsa_tiny", "--format", "folded", "--output", str(device)])
    assert stat.S_ISCHR(device.stat().st_mode)
    assert "is a device or a pipe, not a file: name a file" in capsys.readouterr().err
