"""gcsa adapt: corrected lines to an adapter that gcsa transcribe reads, and its figure."""

import json
import shutil
from pathlib import Path

import pytest
from torchvision.transforms.functional import to_pil_image

import gcsa
from gcsa.cli.adapt import main
from gcsa.tasks.recognition import adapt
from gcsa.tasks.recognition.adapt import epochs_for
from tests.errors import raises
from tests.tasks.recognition.small import lines, recognizer

TEXTS = ("abc", "bad cafe", "fed", "hag", "beg", "face \u2042")


@pytest.fixture
def corrected(tmp_path: Path) -> Path:
    """Twelve lines, some with a character that the base does not know."""
    folder = tmp_path / "lines"
    folder.mkdir()
    for i, image in enumerate(lines(96, 12)):
        to_pil_image(1 - image).save(folder / f"{i}.png")
        (folder / f"{i}.gt.txt").write_text(TEXTS[i % len(TEXTS)], encoding="utf-8")
    return folder


def test_an_adapter_and_its_figure(
    corrected: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base has enough fields for the rank of conf/experiment/ocr_adapter.yaml."""
    weights = recognizer(fields=12).save_pretrained(tmp_path / "weights")
    monkeypatch.setattr(adapt, "LEAST_LINES", 12)
    monkeypatch.setattr(adapt, "EPOCHS", (1, 1))
    output = tmp_path / "books" / "adapter"
    assert main([str(corrected), "--base", str(weights), "--output", str(output), "--threads", "1"]) == 0
    said, progress = capsys.readouterr()
    figures = json.loads((output / "adaptation.json").read_text())
    assert figures["lines"] == {"train": 10, "val": 1, "test": 1}
    header, before, after, _, command = said.splitlines()
    assert header.startswith("1 held-out lines")
    for line, when in ((before, "before"), (after, "after")):
        assert f"CER {when} {figures[when]['cer']:.2%}" in line
    assert f"{weights} {output} BOOK/ --format text" in command
    assert "epoch 1/1" in progress
    assert list(output.parent.iterdir()) == [output], "nothing of the training is left"
    characters = gcsa.load(weights, output).network.charset.characters
    assert characters == gcsa.load(weights).network.charset.characters + "\u2042"


def test_refused(weights: Path, corrected: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    new, enough = tmp_path / "books" / "new", tmp_path / "enough"
    enough.mkdir()
    for file in corrected.iterdir():
        for copy in range(5):
            shutil.copy(file, enough / f"{copy}{file.name}")
    for arguments, message in (
        ([corrected, "--base", weights, "--output", new], f"{corrected} holds 12 corrected lines"),
        ([corrected, "--base", weights, "--output", tmp_path / "full"], "full is there already"),
        ([enough, "--base", "gcsa_tiny.rotmnist", "--output", new], "reads no text"),
        ([enough, "--base", "crnn.french", "--output", new], "model=crnn adapter=full adapter.base=crnn.french"),
        ([tmp_path / "none", "--base", weights, "--output", new], "none is not a folder"),
    ):
        with pytest.raises(SystemExit, match="2"):
            main(list(map(str, arguments)))
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert message in err
        assert not new.parent.exists()


def test_a_split_without_lines_is_named(corrected: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapt, "LEAST_LINES", 2)
    rows = ["split\tfile\tdocument", *(f"train\t{i}.png\ta" for i in range(3))]
    (corrected / "manifest.tsv").write_text("\n".join(rows))
    with raises("lines.no_split"):
        adapt.corrected_lines(corrected)


def test_fewer_lines_are_seen_more_often() -> None:
    assert [epochs_for(lines) for lines in (10, 100, 10_000)] == [20, 10, 6]
