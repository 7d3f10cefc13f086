"""gcsa audit: table, sentence, figure and JSON of any network, and one sentence for what cannot be opened."""

import json
from pathlib import Path
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from gcsa.cli import audit
from gcsa.evaluation.poses import Turn
from gcsa.tasks.recognition.ctc import CTCRecognizer
from gcsa.tasks.recognition.data.typeset import set_lines
from gcsa.testing import randomize
from tests.integrations.pictures import patches

from .conftest import Run

WEIGHTS = "gcsa_pooled_small.pcam"


@pytest.fixture
def images(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    for place, pixels in enumerate(patches(3)):
        Image.fromarray(pixels).save(tmp_path / f"images/{place}.png")
    return tmp_path / "images"


class Net(nn.Module):
    """Sees the corner."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images[:, :2, 0, :3].flatten(1)


def test_weights_of_gcsa_are_exact(run: Run, images: Path) -> None:
    (images / "bad.png").write_text("no image")
    code, out, err = run("audit", WEIGHTS, "--images", images, "--angles", 8, "--output", "found")
    assert code == 1, err
    assert "as it is: exact under d4 to" in out
    assert "1 of 4 could not be measured" in err
    found = json.loads(Path("found/audit.json").read_text())
    assert (found["images"], found["systems"]["as it is"]["group"]) == (3, "d4")
    assert len(found["systems"]["as it is"]["changes"]) == 7 + 4
    assert Path("found/audit.png").stat().st_size > 1000


@pytest.mark.filterwarnings("ignore")  # of torch, about its older formats
@pytest.mark.parametrize("kind", ["function", "pt", "onnx", "pt2"])
def test_any_network_alone_and_made_exact(run: Run, images: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.rand(2, 3, 32, 32)
    if kind == "function":
        Path("own_net.py").write_text("def see(images):\n    return images[:, :2, 0, :3].flatten(1)\n")
        monkeypatch.syspath_prepend(str(Path.cwd()))
        source = "own_net:see"
    elif kind == "pt":
        source = "net.pt"
        torch.jit.trace(Net(), x).save(source)
    elif kind == "onnx":
        pytest.importorskip("onnxruntime")
        source = "net.onnx"
        axes = {"images": {0: "n"}}
        torch.onnx.export(Net(), (x,), source, input_names=["images"], dynamic_axes=axes, dynamo=False)
    else:
        source = "net.pt2"
        batch = {"images": {0: torch.export.Dim("n", min=1, max=64)}}
        torch.export.save(torch.export.export(Net(), (x,), dynamic_shapes=batch), source)
    options = ("--size", 32, "--angles", 4, "--symmetry", "averaged", "--group", "c4", "--output", "found")
    code, out, err = run("audit", source, "--images", images, *options)
    assert code == 0, err
    assert "as it is: not exact for any rotation or reflection" in out
    assert "averaged: exact under c4 " in out
    assert {name: s["group"] for name, s in json.loads(Path("found/audit.json").read_text())["systems"].items()} == {
        "as it is": "c1",
        "averaged": "c4",
    }


def test_features(run: Run, images: Path) -> None:
    code, out, err = run("audit", WEIGHTS, "--kind", "embedding", "--images", images, "--angles", 4)
    assert (code, "cosine" in out, "exact under d4" in out) == (0, True, True), err


def test_one_step_off_the_grid(run: Run, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that sees brightness alone moves with light, and not with poses; one that sees the corner moves with those."""
    Path("seen_net.py").write_text(
        "def light(x):\n    level = x.mean((1, 2, 3))\n    return level[:, None] * level.new_tensor([1.0, 0.0])\n"
        "def corner(x):\n    return x[:, :2, 0, :3].flatten(1)\n"
    )
    monkeypatch.syspath_prepend(str(Path.cwd()))
    found = {}
    for name in ("light", "corner"):
        arguments = ("--angles", 8, "--off-grid", "--size", 32, "--output", name)
        code, out, err = run("audit", f"seen_net:{name}", "--images", images, *arguments)
        assert (code, "brightness" in out) == (0, True), err
        found[name] = json.loads(Path(name, "audit.json").read_text())["systems"]["as it is"]["off_grid"]
    assert set(found["light"]["exact"].values()) == {0}
    assert set(found["light"]["angle"]) == {"45 degrees", "135 degrees", "225 degrees", "315 degrees"}
    assert max(found["corner"]["exact"].values()) > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing.pcam"], "there is no nothing.pcam"),
        (["timm:resnet9000"], "unknown model resnet9000"),
        (["net.onnx"], "there is no net.onnx"),
        (["images/0.pt"], "there is no images/0.pt"),
        (["no_module:f"], "no_module:f cannot be imported (ModuleNotFoundError: No module named 'no_module')"),
        (["math:pi"], "math:pi is not a function"),
        (["math:sqrt"], "math:sqrt does not take these images"),
        (["torch:sum"], "gives () for 3 images: a row of numbers for each is wanted"),
        (
            ["gcsa_unet_tiny.nuclei", "--kind", "embedding"],
            "holds weights for segmentation: leave out --kind embedding",
        ),
        ([WEIGHTS, "--kind", "segmenter"], "holds weights for classification: leave out --kind segmenter"),
        (["gcsa_unet_tiny.nuclei", "--size", "96"], "--size is for classifiers and embeddings"),
        (
            ["gcsa_unet_tiny.nuclei", "--symmetry", "averaged"],
            "--symmetry averaged is not for a segmenter: use --symmetry",
        ),
        (["gcsa_ocr_tiny.print", "--symmetry", "canonical"], "use gcsa transcribe --orientation any"),
        (["net.onnx", "--kind", "reader"], "net.onnx cannot be audited as a reader"),
        (["net.onnx", "--kind", "segmenter", "--group", "c4"], "--group c4 is the group of --symmetry"),
        (["net.onnx", "--kind", "segmenter", "--symmetry", "averaged"], "--symmetry averaged is not for a segmenter"),
        (["gcsa_unet_tiny.nuclei", "--off-grid"], "--off-grid is for classifiers and embeddings"),
        (["gcsa_unet_tiny.nuclei", "--rotations", "8"], "--rotations is for classifiers and embeddings"),
        ([WEIGHTS, "--rotations", "6"], "rotations=6 must be a multiple of 4"),
        (["net.onnx", "--outputs", "instances"], "add --kind segmenter"),
        ([WEIGHTS, "--kind", "embedding", "--limit", "1"], "give two images or more"),
        ([WEIGHTS, "--symmetry", "averaged", "--group", "c8"], "--group: invalid choice: 'c8'"),
        ([WEIGHTS, "--group", "c4"], "--group c4 is the group of --symmetry: add"),
        (["own_net.py"], "own_net.py is a file of Python: name a network in it, own_net:NAME"),
        ([WEIGHTS, "--angles", "0"], "--angles: 0 is not a whole number from 1 to 360"),
    ],
)
def test_what_is_refused(run: Run, images: Path, arguments: list[str], words: str) -> None:
    code, out, err = run("audit", *arguments, "--images", images, "--output", "found")
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
    assert not Path("found").exists()


def test_segmenters(run: Run, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("own_map.py").write_text("def see(x):\n    return (x - x.cumsum(3) / 50 - x.cumsum(2) / 70)[:, :2]\n")
    monkeypatch.syspath_prepend(str(Path.cwd()))
    options = ("--kind", "segmenter", "--symmetry", "canonical", "--group", "c4", "--angles", 4)
    code, out, err = run("audit", "own_map:see", "--images", images, *options)
    assert code == 0, err
    assert "as it is: not exact for any rotation or reflection" in out
    assert "canonical: exact under c4 without any change" in out


def test_objects_between_the_exact_poses_are_matched(run: Run) -> None:
    """No pixel changes in an exact pose. Between them, the control, resampling moves a border pixel of each object, which does not make it
    another one."""
    nuclei = Path(__file__).parents[1] / "stored/nuclei.png"
    code, out, err = run("audit", "gcsa_unet_tiny.nuclei", "--images", nuclei, "--angles", 8, "--output", "found")
    assert code == 0, err
    assert "as it is: exact under d4 without any change; at angles between" in out
    changes = json.loads(Path("found/audit.json").read_text())["systems"]["as it is"]["changes"]
    assert [(change["pixels"], change["objects"]) for change in changes[:7]] == [(0.0, 0.0)] * 7
    assert all(change["pixels"] > 0 and change["objects"] < 0.5 for change in changes[7:])


def test_nothing_found_says_little(run: Run, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("own_none.py").write_text("def see(x):\n    return x[:, :2] * 0\n")
    monkeypatch.syspath_prepend(str(Path.cwd()))
    code, _, err = run("audit", "own_none:see", "--kind", "segmenter", "--images", images, "--angles", 4)
    assert (code, "holds anything but background" in err) == (0, True), err


def test_readers(run: Run, tmp_path: Path) -> None:
    font = Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSerif.ttf"
    (tmp_path / "lines").mkdir()
    for i, (_, image) in enumerate(set_lines(["une ligne", "deux mots"], [font], seed=0)):
        image.save(tmp_path / f"lines/{i}.png")
    code, out, err = run("audit", "gcsa_ocr_tiny.print", "--images", tmp_path / "lines")
    assert code == 0, err
    assert "as it is: exact under c4 without any change" in out
    recognizer = randomize(CTCRecognizer("abcdef", hidden=8, group="c1", fields=4, depth=1, num_heads=1))
    recognizer.save_pretrained(tmp_path / "plain")
    code, out, err = run("audit", tmp_path / "plain", "--images", tmp_path / "lines")
    assert (code, "not exact" in out, "of texts change" in out) == (0, True, True), err


def test_the_figure_is_never_among_the_images(run: Run, images: Path) -> None:
    code, _, err = run("audit", WEIGHTS, "--images", images, "--output", images)
    assert (code, "holds images, among which the figure would be one" in err) == (2, True), err
    assert not (images / "audit.png").exists()


def test_a_network_in_training_mode(run: Run, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where images go through it one by one."""
    Path("drops.py").write_text("import torch\ndrop = torch.nn.Dropout()\ndef see(x):\n    return drop(x[:, 0, 0])\n")
    monkeypatch.syspath_prepend(str(Path.cwd()))
    code, _, err = run("audit", "drops:see", "--images", images, "--size", 32, "--batch-size", 1)
    assert (code, "put it into eval mode" in err) == (2, True), err


def test_tensors_are_no_network(run: Run, images: Path) -> None:
    torch.save(nn.Linear(2, 2).state_dict(), "net.pth")
    code, _, err = run("audit", "net.pth", "--images", images)
    assert (code, "net.pth holds tensors, not a network" in err, err.count("\n")) == (2, True, 1), err


def test_a_file_that_is_no_network(run: Run, images: Path) -> None:
    for suffix in (".pt", ".onnx", ".pt2"):
        Path(f"net{suffix}").write_bytes(np.random.default_rng(0).bytes(100))
        code, _, err = run("audit", f"net{suffix}", "--images", images)
        assert (code, f"net{suffix} cannot be opened as a network" in err) == (2, True), err


def test_the_line_goes_through_the_exact_rotations() -> None:
    changes = [
        SimpleNamespace(turn=Turn(angle), answers=0.0 if angle % 90 == 0 else 0.2)
        for angle in (90, 180, 270, 45, 135, 225, 315)
    ]
    changes.append(SimpleNamespace(turn=Turn(90, reflected=True), answers=1.0))
    line, dots = audit._figure({"net": changes}, "classifier", "").axes[0].lines  # type: ignore[dict-item]
    assert line.get_xdata().tolist() == list(range(0, 361, 45))
    assert line.get_ydata().tolist() == [0.0, 0.2] * 4 + [0.0]
    assert dots.get_xdata().tolist() == [0, 90, 180, 270, 360]
