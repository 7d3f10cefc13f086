"""gcsa transcribe: every line that can be read is, in order; the rest is listed."""

import json
import os
from pathlib import Path

import pytest
import torch
from peft import get_peft_model
from PIL import Image

import gcsa
from gcsa.adapters import lora_config
from gcsa.cli.transcribe import main
from gcsa.models.folding import FoldedConv2d
from gcsa.tasks.recognition import predict
from gcsa.tasks.recognition.ctc import CTCRecognizer
from gcsa.tasks.recognition.predict import RecognitionPredictor
from gcsa.testing import randomize
from tests.images.test_reader import png_header
from tests.tasks.recognition.small import recognizer
from tests.tasks.recognition.test_page_text import write_page

BOMB = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><PcGts>&b;</PcGts>'


def texts(weights: Path, folder: Path, *options: object) -> list[str]:
    return [reading.text for reading in gcsa.load(weights).predict(sorted(folder.iterdir()), *options)]


def test_lines_of_a_page(weights: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_page(folder, tmp_path)
    (tmp_path / "mets.xml").write_text("<mets/>")
    assert main([str(weights), "--format", "json", str(tmp_path), str(folder / "1.png")]) == 0
    first, second, third = map(json.loads, capsys.readouterr().out.splitlines())
    assert first.keys() == {"file", "line", "box", "text", "confidence", "orientation", "words"}
    assert [word["text"] for word in first["words"]] == first["text"].split()
    assert all(0 < word["confidence"] < 1 and word["box"][1::2] == [50, 89] for word in first["words"])
    assert (first["file"], first["line"], first["box"]) == (str(tmp_path / "1.xml"), 1, [10, 50, 105, 89])
    assert (second["line"], second["text"]) == (2, third["text"])
    assert third.keys() == {"file", "text", "confidence", "orientation"}
    assert 0 < third["confidence"] < 1


def test_what_cannot_be_read_is_listed_and_the_rest_read(
    weights: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "corrupt.png").write_bytes((folder / "0.png").read_bytes()[:60])
    (tmp_path / "flat.png").write_bytes(png_header(100, 0))
    Image.new("L", (100, 40), "white").save(tmp_path / "white.png")
    Image.effect_noise((20_000, 40), 90).save(tmp_path / "long.png")
    (tmp_path / "bomb.xml").write_text(BOMB)
    bad = ("empty.png", "corrupt.png", "flat.png", "white.png", "long.png", "bomb.xml")
    inputs = [str(folder / "0.png"), *(str(tmp_path / name) for name in bad), str(folder / "1.png")]

    assert main([str(weights), *inputs]) == 1
    out, err = capsys.readouterr()
    expected = texts(weights, folder)[:2]
    assert out.split("\n") == [expected[0], *[""] * 6, expected[1], ""], "line n of the output is image n"
    *listed, warning, count = err.splitlines()
    assert warning.startswith("The text was read with a confidence of 0."), "these weights are random"
    assert count == "6 of 8 could not be read"
    for name, line in zip(bad, listed, strict=True):
        assert str(tmp_path / name) in line
    for line, reason in zip(listed[3:], ("blank", "cut it into pieces", "read safely"), strict=True):
        assert reason in line

    with pytest.raises(SystemExit, match="2"):
        main([str(weights), str(folder / "0.png"), str(tmp_path / "missing.png")])
    assert capsys.readouterr().err.startswith(f"error: there is no {tmp_path / 'missing.png'}: give line images")

    assert main([str(weights), "--format=json", *inputs[:2]]) == 1
    good, empty = map(json.loads, capsys.readouterr().out.splitlines())
    assert good["text"] == expected[0]
    assert empty.keys() == {"file", "error"}


def test_images_elsewhere_need_a_flag(
    weights: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_page(folder, tmp_path)
    (tmp_path / "1.png").rename(tmp_path / "secret.png")
    (tmp_path / "export" / "page").mkdir(parents=True)
    path = tmp_path / "export" / "page" / "1.xml"
    path.write_text((tmp_path / "1.xml").read_text().replace("1.png", str(tmp_path / "secret.png")))
    assert main([str(weights), str(path)]) == 1
    assert "needs the image secret.png: put it beside the file" in capsys.readouterr().err
    assert main([str(weights), str(path), "--any-image"]) == 0


def test_names_that_are_not_utf_8(
    weights: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        (tmp_path / os.fsdecode(b"caf\xe9.png")).write_bytes((folder / "0.png").read_bytes())
    except OSError:
        pytest.skip("this file system takes UTF-8 only")
    output = tmp_path / "text.json"
    assert main([str(weights), "--format=json", str(tmp_path), "--output", str(output)]) == 0
    assert json.loads(output.read_text(encoding="utf-8"))["file"] == f"{tmp_path}/caf\\xe9.png"


def save_adapter(target: Path, fields: int = 8) -> Path:
    base = recognizer(fields=fields)
    adapted = get_peft_model(base, lora_config(base, 2, init_lora_weights=False))
    randomize(adapted)
    adapted.save_pretrained(str(target))
    base.save_charset(target)
    return target


def test_an_adapter_by_place_or_by_name(
    weights: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    adapter = save_adapter(tmp_path / "adapter")
    said = []
    for arguments in ([weights, adapter, folder], [weights, folder, "--adapter", adapter], [weights, folder]):
        assert main(list(map(str, arguments))) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] != said[2]


def test_wrong_arguments_are_told_before_anything_is_read(
    weights: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of other weights and of the input; tests/cli/test_bad_arguments.py has the others."""
    monkeypatch.setattr(predict, "read_line", pytest.fail)
    other = save_adapter(tmp_path / "other", fields=4)
    image = folder / "0.png"
    for arguments, message in (
        ((weights, other, image), "other is of another model"),
        ((weights, "--output", image, folder), "0.png is one of the inputs, and would be overwritten"),
    ):
        with pytest.raises(SystemExit, match="2"):
            main(list(map(str, arguments)))
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("error: ")
        assert message in err
        assert err.count("\n") == 1


def test_the_output_is_whole_or_as_it_was(
    weights: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "text.txt"
    output.write_text("before")
    arguments = [str(weights), str(folder), "--output", str(output)]

    transcribe = RecognitionPredictor.transcribe

    def interrupted(*args: object) -> object:
        yield next(transcribe(*args))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RecognitionPredictor, "transcribe", interrupted)
        with pytest.raises(SystemExit, match="130"):
            main(arguments)
    assert output.read_text() == "before"
    others = [*arguments, "--beams", "3", "--batch-size", "4", "--orientation", "upright"]
    with pytest.raises(SystemExit, match="2"):
        main(others)
    assert main([*others, "--overwrite"]) == 0
    assert output.read_text().splitlines() == texts(weights, folder, "upright", 3)
    assert list(tmp_path.iterdir()) == [output]


def test_half_precision(
    weights: Path, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[torch.dtype] = set()
    features = CTCRecognizer.features

    def spied(model: CTCRecognizer, images: torch.Tensor) -> torch.Tensor:
        assert any(isinstance(module, FoldedConv2d) for module in model.modules())
        x = features(model, images)
        seen.add(x.dtype)
        return x

    monkeypatch.setattr(CTCRecognizer, "features", spied)
    said = []
    for precision in ("32", "bf16"):
        assert main([str(weights), str(folder), "--precision", precision, "--format", "json"]) == 0
        said.append([json.loads(line)["confidence"] for line in capsys.readouterr().out.splitlines()])
    assert seen == {torch.float32, torch.bfloat16}
    assert said[0] != said[1] == pytest.approx(said[0], rel=0.1)
