"""A whole run on text lines: what it writes, and that it is read the same in any orientation."""

import json
import random
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf
from PIL import Image, ImageDraw, ImageFont

import gcsa
from gcsa import adapters
from gcsa.tasks.recognition.task import Recognizer, Task as Recognition
from gcsa.testing import relative_error
from tests.errors import raises
from tests.runs import composed, train

SMALL = (
    *("experiment=ocr_ctc", "model.fields=8", "model.depth=1", "model.num_heads=2", "model.hidden=32"),
    *("data.batch_size=4", "trainer.max_epochs=2", "logger=none", "callbacks=no_ema", "threads=1"),
)


def draw_lines(folder: Path, letters: str, count: int) -> Path:
    """Printed lines of random words with their texts, in a folder of their own."""
    folder.mkdir()
    draw_from = random.Random(0)
    for i in range(count):
        text = " ".join("".join(draw_from.choices(letters, k=3)) for _ in range(2))
        image = Image.new("L", (120, 40), "white")
        ImageDraw.Draw(image).text((4, 4), text, "black", ImageFont.load_default(24))
        image.save(folder / f"{i:05d}.png")
        (folder / f"{i:05d}.gt.txt").write_text(text + "\n")
    return folder


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_lines(tmp_path_factory.mktemp("data") / "lines", "abcd", 40)


@pytest.fixture(scope="module")
def finished(lines: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run, tested at its end."""
    folder = tmp_path_factory.mktemp("finished")
    score = train(composed(folder, *SMALL, f"data.path={lines}"), folder)
    assert score == json.loads((folder / "results.json").read_text())["results"]["val/cer"]
    return folder


@pytest.mark.parametrize("adapter", ["lora", "full"])
def test_a_training_keeps_the_calibration_of_its_base(
    finished: Path, lines: Path, adapter: str, tmp_path: Path
) -> None:
    """The merged weights and the adapter on its base then say the same confidences."""
    base = gcsa.load(finished).network
    base.calibration = (1.5, 0.25)
    base.save_pretrained(tmp_path / "base")
    further = [f"adapter={adapter}", f"adapter.base={tmp_path / 'base'}", f"data.path={lines}", "test=false"]
    further += ["adapter.rank=2"] if adapter == "lora" else []
    train(composed(tmp_path / "run", *SMALL, *further, "trainer.max_epochs=1"), tmp_path / "run")
    assert gcsa.load(tmp_path / "run/weights").network.calibration == (1.5, 0.25)
    if adapter == "full":
        (checkpoint,) = (tmp_path / "run/checkpoints").glob("best*.ckpt")
        assert gcsa.load(checkpoint).network.calibration == (1.5, 0.25)


def test_results_say_how_lines_are_read(finished: Path) -> None:
    content = json.loads((finished / "results.json").read_text())
    results = content["results"]
    low, high = results["test/cer_interval"]
    assert low <= results["test/cer"] <= high
    assert results["test/same_when_rotated"] == 1.0
    assert {"val/cer", "test/wer", "test/loss", "test/cer_any", "test/orientation_found"} <= results.keys()
    assert [content[key] for key in ("model", "data", "seed")] == ["gcsa_ocr_tiny", "lines", 0]
    assert content["flops"] > 1e6


def test_checkpoint_and_weights_are_one_model(finished: Path) -> None:
    best = finished / "checkpoints/best.ckpt"
    module = Recognizer.load_from_checkpoint(best, map_location="cpu", weights_only=True).eval()
    opened = gcsa.load(finished / "weights").network
    images = torch.rand(2, 1, 40, 120)
    assert torch.equal(opened(images), module(images))
    assert opened.charset.characters == " abcd"


def test_the_crnn_is_compared_in_the_same_way(lines: Path, tmp_path: Path) -> None:
    small = (*SMALL[5:], "model=crnn", "model.channels=4", "trainer.max_epochs=1")
    train(composed(tmp_path, "experiment=ocr_ctc", *small, f"data.path={lines}"), tmp_path)
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    assert results["test/same_when_rotated"] == 1.0
    assert "test/cer_upside_down" in results


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (("data.path=null",), "data.script_or_path"),
        (("data.height=42",), "height.stride"),
        (("data.step=4", "data.height=44"), "height.stride"),
        (("data.step=4",), "data.step"),
        (("+model.colour=1",), "option.unknown"),
        (("monitor.metric=val/accuracy",), "monitor.metric"),
    ],
)
def test_wrong_choices(lines: Path, tmp_path: Path, overrides: tuple[str, ...], key: str) -> None:
    with raises(key):
        train(composed(tmp_path, *SMALL, f"data.path={lines}", *overrides), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("upsample", [1, 2])
def test_lines_are_left_out_where_the_recogniser_has_too_few_steps(tmp_path: Path, upsample: int) -> None:
    """Each of these lines needs 14 to 27 of the steps that it has: 13 with one in 8 pixels, 26 with one in 4."""
    folder = draw_lines(tmp_path / "lines", "abcd", 3)
    for i, text in enumerate(("abcdabcdabcdab", "abababababababab", "abcabcabcabcabcabca")):
        Image.open(folder / f"{i:05d}.png").resize((104, 40)).save(folder / f"{i:05d}.png")
        (folder / f"{i:05d}.gt.txt").write_text(text)
    cfg = OmegaConf.to_container(
        composed(tmp_path / "run", *SMALL, f"data.path={folder}", f"model.upsample={upsample}"), resolve=True
    )
    task = Recognition()
    data = task.build_data(cfg)
    module = task.build_module(cfg, data)
    steps = module(torch.zeros(1, 1, 40, 104)).shape[1]
    assert data.pixels_per_step == 104 / steps
    if upsample == 1:
        with raises("lines.too_long"):
            data.setup("fit")
    else:
        data.setup("fit")


@pytest.fixture(scope="module")
def other_lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A script with two letters that the base never saw."""
    return draw_lines(tmp_path_factory.mktemp("other") / "lines", "cdxy", 20)


def test_an_adapter_reads_another_script(finished: Path, other_lines: Path, tmp_path: Path) -> None:
    base = finished / "checkpoints/best.ckpt"
    adapter = ("adapter=lora", "adapter.rank=2", f"adapter.base={base}", "trainer.max_epochs=1")
    train(composed(tmp_path, *SMALL, *adapter, f"data.path={other_lines}"), tmp_path)
    content = json.loads((tmp_path / "results.json").read_text())
    assert 0 < content["trainable"] < content["parameters"]
    assert content["adapter_bytes"] == (tmp_path / "adapter/adapter_model.safetensors").stat().st_size
    assert content["results"]["test/same_when_rotated"] == 1.0

    images = torch.rand(2, 1, 40, 120)
    merged, adapted = (
        gcsa.load(tmp_path / "weights").network,
        gcsa.load(finished / "weights", tmp_path / "adapter").network,
    )
    module = Recognizer.load_from_checkpoint(tmp_path / "checkpoints/best.ckpt", map_location="cpu", weights_only=True)
    assert merged.charset.characters == adapted.charset.characters == " abcdxy"
    assert relative_error(adapted(images), merged(images)) < 1e-6
    assert relative_error(module.eval()(images), merged(images)) < 1e-5
    plain = gcsa.load(finished / "checkpoints/best.ckpt").network
    assert relative_error(adapted(images)[..., :6], plain(images)) > 1e-3
    plain.extend(" abcdxy")
    wrapped = adapters.load(plain, tmp_path / "adapter")
    with wrapped.disable_adapter():
        assert torch.equal(
            wrapped(images)[..., :6].argmax(-1), gcsa.load(finished / "weights").network(images).argmax(-1)
        )


def test_a_base_trained_whole(finished: Path, other_lines: Path, tmp_path: Path) -> None:
    whole = ("adapter=full", f"adapter.base=local-dir:{finished / 'weights'}", "trainer.max_epochs=1")
    train(composed(tmp_path, *SMALL, *whole, f"data.path={other_lines}"), tmp_path)
    content = json.loads((tmp_path / "results.json").read_text())
    assert content["trainable"] == content["parameters"]
    assert not (tmp_path / "adapter").exists()
    assert gcsa.load(tmp_path / "weights").network.charset.characters == " abcdxy"


def test_an_lstm_grows_on_a_base_and_stays(finished: Path, lines: Path, tmp_path: Path) -> None:
    """A base without an LSTM is trained with one; who then continues from that need not name it."""
    grown, again = tmp_path / "grown", tmp_path / "again"
    whole = ("adapter=full", f"adapter.base=local-dir:{finished / 'weights'}", "trainer.max_epochs=1")
    train(composed(grown, *SMALL, *whole, "model.recurrent=4", f"data.path={lines}"), grown)
    lora = ("adapter=lora", "adapter.rank=2", f"adapter.base=local-dir:{grown / 'weights'}", "trainer.max_epochs=1")
    train(composed(again, *SMALL, *lora, f"data.path={lines}"), again)
    assert gcsa.load(again / "weights").network.options["recurrent"] == 4
    with raises("weights.other_architecture"):
        train(composed(tmp_path / "none", *SMALL, *lora, "model.recurrent=0", f"data.path={lines}"), tmp_path / "none")


def test_a_base_of_other_options(finished: Path, other_lines: Path, tmp_path: Path) -> None:
    lora = ("adapter=lora", "adapter.rank=2", f"adapter.base={finished / 'checkpoints/best.ckpt'}")
    for override, key in (
        ("model.depth=2", "weights.other_architecture"),
        ("model.num_heads=1", "adapter.base_option"),
    ):
        with raises(key):
            train(composed(tmp_path, *SMALL, *lora, override, f"data.path={other_lines}"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_no_adapter(finished: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no .*adapter_config\.json"):
        gcsa.load(finished / "weights", finished)
