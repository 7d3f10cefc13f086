"""kraken's lines and kraken's commands; the environment of the other tests holds no kraken: see .ci/run."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kraken")
import numpy as np
import torch
from click.testing import CliRunner
from kraken.configs import RecognitionInferenceConfig
from kraken.containers import BBoxLine, Segmentation
from kraken.ketos import cli
from kraken.lib.xml import XMLPage
from kraken.models import load_models
from PIL import Image
from safetensors.torch import save_file

import gcsa
from gcsa.cli import export, transcribe
from gcsa.tasks.recognition.evaluate import text_scores
from gcsa.tasks.recognition.kraken.plugin import GCSARecognizer
from gcsa.tasks.recognition.pages.page_xml import read_page
from tests.errors import raises
from tests.tasks.recognition.schemas import PAGES, check

ROOT = Path(__file__).parents[3]
PAGE = PAGES / "fr_print_page.jpg"
TEXT = Path(__file__).with_name("fr_print_page.txt")
MODEL = "gcsa_ocr_tiny.print"
with_page = pytest.mark.skipif(not PAGE.is_file(), reason=f"no {PAGE}: set GCSA_DATA")


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("kraken") / f"{MODEL}.safetensors"
    assert export.main([MODEL, "--format", "kraken", "--output", str(file)]) == 0
    return file


def read(folder: Path, turn: int, kind: str) -> Path:
    """What gcsa transcribe writes of the page scanned at `turn` degrees."""
    scan, out = folder / f"{turn}.png", folder / f"{turn}.{kind}"
    if not out.exists():
        Image.fromarray(np.rot90(np.asarray(Image.open(PAGE).convert("RGB")), turn // 90)).save(scan)
        assert transcribe.main([MODEL, str(scan), "--lines", "kraken", "--format", kind, "--output", str(out)]) == 0
    return out


@with_page
def test_a_page_by_krakens_lines_reads_the_same_at_a_quarter_turn(file: Path) -> None:
    texts = {turn: read(file.parent, turn, "text").read_text(encoding="utf-8") for turn in (0, 90)}
    assert len(set(texts.values())) == 1
    assert text_scores([texts[0].strip()], [TEXT.read_text(encoding="utf-8").strip()]).cer <= 0.08


@with_page
@pytest.mark.parametrize(("kind", "schema"), [("page", "pagecontent.xsd"), ("alto", "alto-4-3.xsd")])
def test_text_goes_back_into_xml(file: Path, tmp_path: Path, kind: str, schema: str) -> None:
    """kraken opens the file before and after: the lines are the same."""
    given, filled = tmp_path / "given.xml", tmp_path / "filled.xml"
    given.write_bytes(read(file.parent, 0, kind).read_bytes())
    (tmp_path / "0.png").write_bytes((file.parent / "0.png").read_bytes())
    assert transcribe.main([MODEL, str(given), "--format", kind, "--output", str(filled)]) == 0
    check(filled, schema)
    before, after = (XMLPage(path).to_container().lines for path in (given, filled))
    assert [(line.id, line.baseline) for line in after] == [(line.id, line.baseline) for line in before]
    truth = TEXT.read_text(encoding="utf-8").strip()
    assert text_scores(["\n".join(line.text for line in read_page(filled))], [truth]).cer <= 0.09


@with_page
def test_krakens_own_command_reads_the_same(file: Path) -> None:
    ours = read(file.parent, 0, "text").read_text(encoding="utf-8").splitlines()
    out = file.parent / "kraken.xml"
    kraken = [str(Path(sys.executable).parent / "kraken"), "--threads", "2"]
    page = str(file.parent / "0.png")
    subprocess.run([*kraken, "-x", "-i", page, str(out), "segment", "-bl", "ocr", "-m", str(file)], check=True)
    check(out, "pagecontent.xsd")
    assert sorted(line.text for line in read_page(out)) == sorted(ours), "in kraken's own reading order"


def test_kraken_opens_the_file_by_its_entry_point(file: Path) -> None:
    (model,) = load_models(file, tasks=["recognition"])
    assert isinstance(model, GCSARecognizer)
    assert load_models(file, tasks=["segmentation"]) == []
    own = gcsa.load(MODEL).network.state_dict()
    assert all(torch.equal(tensor, own[name]) for name, tensor in model.model.state_dict().items())


def test_a_file_that_says_something_else_is_refused(file: Path, tmp_path: Path) -> None:
    for config, says in (
        ({"task": "recognition", "characters": "ab", "architecture": "os.system"}, "unknown encoder .os.system"),
        ({}, "architecture"),
    ):
        meta = {"gcsa": {"_tasks": ["recognition"], "_model": "GCSARecognizer", "config": config}}
        save_file({"gcsa.x": torch.zeros(1)}, tmp_path / "bad.safetensors", {"kraken_meta": json.dumps(meta)})
        with pytest.raises(ValueError, match=says):
            load_models(tmp_path / "bad.safetensors")


def test_boxes_and_lines_that_cannot_be_read_give_records_too(file: Path) -> None:
    (model,) = load_models(file)
    model.prepare_for_inference(RecognitionInferenceConfig())
    sheet = Image.new("L", (500, 200), 255)
    rough = np.random.default_rng(0).integers(0, 255, (40, 400)).astype(np.uint8)
    sheet.paste(Image.fromarray(rough), (20, 20))
    boxes = [BBoxLine("a", bbox=(20, 20, 420, 60)), BBoxLine("b", bbox=(30, 30, 400, 32))]
    found = Segmentation("bbox", "sheet.png", "horizontal-lr", False, boxes)
    first, second = model.predict(sheet, found)
    assert len(first.prediction) == len(first.cuts) == len(first.confidences)
    assert (second.prediction, first.id, second.id) == ("", "a", "b")


@pytest.fixture
def lines(tmp_path: Path) -> list[str]:
    """Six lines with their texts, one of them with a character that the published weights do not know."""
    read = json.loads((ROOT / "tests/stored/expected.json").read_text(encoding="utf-8"))[MODEL]
    for number in range(6):
        source = f"fr17_{1 + number % 2}.png"
        shutil.copy(ROOT / "tests/stored" / source, tmp_path / f"{number}.png")
        (tmp_path / f"{number}.gt.txt").write_text(read[source]["text"] + "\u2042" * (number == 0), encoding="utf-8")
    return sorted(map(str, tmp_path.glob("*.png")))


def ketos(*words: str, command: str = "train") -> Any:
    return CliRunner().invoke(cli, ["-d", "cpu", "--threads", "1", command, *words], catch_exceptions=False)


def trained(folder: Path) -> GCSARecognizer:
    """The recogniser in the file that ketos wrote."""
    (weights,) = folder.glob("best_*.safetensors")
    (model,) = load_models(weights, tasks=["recognition"])
    assert isinstance(model, GCSARecognizer)
    return model


def test_ketos_trains_a_new_recogniser(lines: list[str], tmp_path: Path) -> None:
    done = ketos("--arch", "gcsa", "-f", "path", "-N", "1", "-p", "0.8", "-o", str(tmp_path / "new"), *lines)
    assert done.exit_code == 0, done.output
    model = trained(tmp_path / "new").model
    assert model.options["encoder"] == "gcsa_ocr_tiny"
    assert "\u2042" in model.charset.characters
    assert all(tensor.isfinite().all() for tensor in model.state_dict().values())


def test_ketos_goes_on_and_resumes(file: Path, lines: list[str], tmp_path: Path) -> None:
    """From published weights, which know all characters but one: they read the lines as before."""
    out = tmp_path / "more"
    few = ("--load", str(file), "-f", "path", "-N", "1", "-r", "0.00001", "-o", str(out))
    assert ketos(*few, "--resize", "fail", *lines).exit_code != 0
    done = ketos(*few, "-e", manifest(lines[1:]), *lines)
    assert done.exit_code == 0, done.output
    assert trained(out).model.charset.characters == gcsa.load(MODEL).network.charset.characters + "\u2042"
    best = float(next(out.glob("best_*")).stem.removeprefix("best_"))
    assert best > 0.97
    (checkpoint,) = out.glob("checkpoint_0*.ckpt")
    assert ketos("--resume", str(checkpoint), "-N", "2").exit_code == 0
    assert len(list(out.glob("checkpoint_0*.ckpt"))) == 2


def manifest(lines: list[str]) -> str:
    """A file that names them, as `-e` of ketos wants."""
    file = Path(lines[0]).parent / "manifest.txt"
    file.write_text("\n".join(lines))
    return str(file)


def test_ketos_measures(file: Path, lines: list[str]) -> None:
    done = ketos("-m", str(file), "-f", "path", *lines, command="test")
    assert done.exit_code == 0, done.output
    texts = [Path(line).with_suffix(".gt.txt").read_text(encoding="utf-8") for line in lines]
    assert re.search(rf"{sum(map(len, texts))}\s+Characters", done.output)
    assert re.search(r"\b1\s+Errors", done.output), "the character that the published weights do not know"


def test_ketos_has_no_binary_data_for_us(lines: list[str], tmp_path: Path) -> None:
    with raises("kraken.binary"):
        ketos("--arch", "gcsa", "-f", "binary", "-o", str(tmp_path / "new"), *lines)
