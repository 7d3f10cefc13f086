"""Lines read the same whatever lies beside them; the lines of a page decide together on its orientation."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import gcsa
from gcsa.groups import group as make_group
from gcsa.tasks.recognition import predict
from gcsa.tasks.recognition.ctc import CTCRecognizer
from gcsa.tasks.recognition.data.line_image import fit_line, read_line
from gcsa.tasks.recognition.pages.inputs import find_lines, find_sources
from gcsa.tasks.recognition.pages.layout import PageFinder
from gcsa.tasks.recognition.predict import RecognitionPredictor, low_confidence_warning
from gcsa.tasks.recognition.reading import (
    CALIBRATION,
    LOW_CONFIDENCE,
    Character,
    Reading,
    calibrated,
    most_confident,
    page_orientation,
)
from tests.errors import raises

DEGREES = (0, 90, 180, 270)


@pytest.fixture(scope="module")
def predictor(weights: Path) -> RecognitionPredictor:
    loaded = gcsa.load(weights)
    assert isinstance(loaded, RecognitionPredictor)
    return loaded


def texts(predictor: RecognitionPredictor, *inputs: Path, **options: Any) -> list[str]:
    pages = predictor.transcribe(
        (find_lines(source, PageFinder()) for source in find_sources(inputs)), "upright", **options
    )
    found = [transcript.reading for page in pages for transcript in page]
    return [reading.text for reading in found if reading is not None]


def test_lines_come_in_order_and_do_not_depend_on_their_batch(
    predictor: RecognitionPredictor, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [folder / f"{i}.png" for i in range(7)]
    alone = [predictor.network.read(fit_line(read_line(file), 40)[None])[0].text for file in files]
    assert len(set(alone)) == 7
    assert texts(predictor, folder) == texts(predictor, *files) == texts(predictor, folder, batch_size=2) == alone
    assert texts(predictor, *reversed(files)) == alone[::-1]
    assert [reading.text for reading in predictor.predict(files, "upright")] == alone
    done: list[int] = []
    monkeypatch.setattr(predict, "CHUNK", 3)
    assert texts(predictor, folder, advance=done.append) == alone
    assert sum(done) == 7


def test_kinds_of_images(predictor: RecognitionPredictor, folder: Path) -> None:
    file = folder / "0.png"
    image = Image.open(file)
    pixels = np.asarray(image.convert("RGB"))
    expected = predictor.predict(file)
    assert isinstance(expected, Reading)
    tensor = torch.from_numpy(pixels.copy()).movedim(-1, 0)
    for same in (str(file), image, pixels, pixels[..., 0], tensor, tensor.float() / 255, tensor[:1]):
        reading = predictor.predict(same)
        assert (reading.text, reading.orientation) == (expected.text, expected.orientation)
    rotated = predictor.predict([np.rot90(pixels, k) for k in range(4)])
    assert {reading.text for reading in rotated} == {expected.text}
    assert [(reading.orientation - expected.orientation) % 360 for reading in rotated] == [*DEGREES]
    upright = predictor.predict([np.rot90(pixels, k) for k in range(4)], "upright")
    assert [reading.orientation for reading in upright] == [0] * 4
    assert upright[0].text != upright[2].text


@pytest.mark.parametrize(
    ("image", "key"),
    [
        (Path("no.png"), "line.refused"),
        (np.zeros((2, 3, 4, 5)), "image.shape"),
        (np.full((40, 90), 7.0), "image.range"),
        (np.zeros((40, 90, 2), np.complex64), "image.array"),
        (np.zeros((40, 90), np.uint8), "line.blank"),
    ],
)
def test_images_that_cannot_be_read(predictor: RecognitionPredictor, image: Any, key: str) -> None:
    with raises(key):
        predictor.predict(image)


@pytest.fixture
def three_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("three_threads")
def test_batches_side_by_side(predictor: RecognitionPredictor, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In threads of their own, with the caller's settings; torch's number of threads is then as it was."""
    seen: list[tuple[int, int, torch.dtype]] = []
    features = CTCRecognizer.features

    def spied(model: CTCRecognizer, images: torch.Tensor) -> torch.Tensor:
        x = features(model, images)
        seen.append((threading.get_ident(), torch.get_num_threads(), x.dtype))
        return x

    alone = texts(predictor, folder, batch_size=1)
    monkeypatch.setattr(CTCRecognizer, "features", spied)
    with torch.autocast("cpu", torch.bfloat16):
        assert len(texts(predictor, folder, batch_size=1)) == len(alone)
    assert {(threads, dtype) for _, threads, dtype in seen} == {(1, torch.bfloat16)}
    assert threading.get_ident() not in {thread for thread, *_ in seen}
    assert torch.get_num_threads() == 3
    with raises("beams"):
        texts(predictor, folder, beams=0)
    assert torch.get_num_threads() == 3
    monkeypatch.setattr(predict, "MOST_WORKERS", 1)
    seen.clear()
    assert texts(predictor, folder, batch_size=1) == alone
    assert {entry[:2] for entry in seen} == {(threading.get_ident(), 3)}


class Reader(torch.nn.Module):
    """Reads the darkest third of a line, above, below, left or right: with confidence 0.9 where it lies below.

    A line whose thirds are equal has no orientation of its own: upside down it is read with 0.95.
    """

    group, height, stride = make_group("c4"), 40, 8

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def read_orientations(self, images: Tensor, orientation: str, beams: int) -> list[dict[int, Reading]]:
        degrees = [0] if orientation == "upright" else [0, 180] if images.shape[2] == self.height else [90, 270]
        return [{d: self._read(torch.rot90(image[0], -d // 90), d) for d in degrees} for image in images]

    def _read(self, line: Tensor, degrees: int) -> Reading:
        third = line.shape[0] // 3
        below, above = line[-third:].mean(), line[:third].mean()
        name = f"{line.shape[1]} wide, {float(below - above):.1f}"
        if abs(below - above) < 0.01:
            return Reading(name, 0.95 if degrees == 180 else 0.6, degrees)
        return Reading(name, 0.9 if below > above else 0.5, degrees)


def line(width: int, alike: bool = False) -> Tensor:
    """Ink (1, 40, width) with an orientation, or one that looks alike upside down."""
    ink = torch.zeros(1, 40, width)
    ink[:, 28:, :] = 1
    if alike:
        ink[:, :12, :] = 1
    return ink


def read(inks: list[Tensor], degrees: int, on_page: bool) -> list[Any]:
    rotated: list[Callable[[], Tensor]] = [partial(torch.rot90, ink, degrees // 90, (1, 2)) for ink in inks]
    return RecognitionPredictor(Reader()).read_lines(rotated, [0] * len(inks) if on_page else ())


@pytest.mark.parametrize("degrees", DEGREES)
def test_lines_of_a_page_share_its_orientation(degrees: int) -> None:
    """Also one that looks alike upside down, and one that is higher than long."""
    number = torch.zeros(1, 40, 24)
    number[:, 30:] = 1
    inks = [line(200), line(64, alike=True), number, line(240)]
    together = read(inks, degrees, on_page=True)
    assert [reading.orientation for reading in together] == [degrees] * 4
    assert [reading.text for reading in together] == [reading.text for reading in read(inks, 0, on_page=True)]
    assert together[2].text.startswith("24 wide")
    assert not read([number], degrees, on_page=False)[0].text.startswith("24 wide")


def test_lines_with_an_orientation_of_their_own() -> None:
    alone = read([line(200), line(64, alike=True)], 0, on_page=False)
    assert [reading.orientation for reading in alone] == [0, 180]
    margin = torch.rot90(line(160), 1, (1, 2))
    across = read([line(200), margin, line(240)], 0, on_page=True)
    assert [reading.orientation for reading in across] == [0, 90, 0]


def test_a_line_that_cannot_be_read_leaves_the_others() -> None:
    def broken() -> Tensor:
        raise ValueError("torn")

    readings = RecognitionPredictor(Reader()).read_lines([broken, lambda: line(200)], [0, 0])
    assert isinstance(readings[0], ValueError)
    assert isinstance(readings[1], Reading)


def test_equal_readings_are_told_apart_by_their_text() -> None:
    a, b = Reading("a", 0.9, 0), Reading("b", 0.900001, 180)
    assert most_confident({0: a, 180: b}) == most_confident({0: b, 180: a}) == a
    assert most_confident({0: a, 180: Reading("b", 0.91)}).text == "b"


def test_votes_count_with_length_and_confidence() -> None:
    long = {0: Reading("", 0.8), 180: Reading("", 0.6)}
    short = {0: Reading("", 0.1), 180: Reading("", 0.9)}
    assert page_orientation([long, short], [50, 5]) == 0
    assert page_orientation([long, short], [5, 50]) == 180
    assert page_orientation([{90: Reading("", 0.5), 270: Reading("", 0.4)}], [9]) == 90
    assert page_orientation([], []) == 0


def test_text_of_low_confidence_is_said_to_be_so() -> None:
    assert (
        low_confidence_warning([(40, 0.97), (3, 0.5)])
        == low_confidence_warning([])
        == low_confidence_warning([(0, 0.0)])
        == ""
    )
    assert "0.88, below 0.9:" in low_confidence_warning([(40, 0.88)])


def test_confidences_are_the_share_that_is_likely_right() -> None:
    """Monotonously, so that no choice between readings would change; the geometric mean of the characters is the line's."""
    own = [0.0, 0.3, 0.5, 0.7, 0.81, 0.89, 0.97, 1.0]
    found = [calibrated(Reading("a", confidence)).confidence for confidence in own]
    assert found == sorted(found)
    assert found[-2] > 0.95
    assert found[5] == pytest.approx(0.68, abs=0.03), "of lines of Fraktur two thirds were right"
    assert found[4] < LOW_CONFIDENCE
    signs = (Character("a", 0.0, 0.5, 0.99), Character("b", 0.5, 1.0, 0.8))
    line = calibrated(Reading("ab", 0.89, 0, signs))
    first, second = (character.confidence for character in line.characters)
    assert first > second
    assert first * second == pytest.approx(line.confidence**2)
    certain = calibrated(Reading("a", 1.0, 0, (Character("a", 0.0, 1.0, 1.0),)))
    assert 0.99 < certain.confidence <= 1
    assert certain.characters[0].confidence == pytest.approx(certain.confidence)
    assert calibrated(Reading("", 0.0)) == Reading("", 0.0)


def test_weights_have_a_calibration_of_their_own(tmp_path: Path) -> None:
    network = gcsa.load("gcsa_ocr_tiny.french").network
    assert network.calibration != CALIBRATION
    assert gcsa.load(network.save_pretrained(tmp_path / "same")).network.calibration == network.calibration
    ink = [lambda: torch.rand(1, 40, 96, generator=torch.Generator().manual_seed(0))]
    (given,) = RecognitionPredictor(network).read_lines(ink, (), "upright")
    network.calibration = (1.0, 2.0)
    (surer,) = RecognitionPredictor(network).fold().read_lines(ink, (), "upright")
    assert surer.text == given.text
    assert surer.confidence > given.confidence
    config = tmp_path / "same/config.json"
    text = config.read_text(encoding="utf-8")
    for damaged in ('"high"', "-1", "100"):
        config.write_text(text.replace("0.7171", damaged), encoding="utf-8")
        with raises("weights.entry"):
            gcsa.load(tmp_path / "same")
