"""A page is cut into the same lines however it was scanned."""

from dataclasses import dataclass, field
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from PIL import Image

import gcsa
from gcsa.cli import transcribe as command
from gcsa.tasks.recognition.data.cutting import FoundLine, Points, cut
from gcsa.tasks.recognition.data.line_image import read_line
from gcsa.tasks.recognition.data.typeset import set_lines
from gcsa.tasks.recognition.evaluate import text_scores
from gcsa.tasks.recognition.kraken import lines as by_kraken
from gcsa.tasks.recognition.pages import detector, layout
from gcsa.tasks.recognition.pages.detector import detect_lines
from gcsa.tasks.recognition.pages.inputs import Source, find_lines, is_page
from gcsa.tasks.recognition.pages.layout import PageFinder
from gcsa.tasks.recognition.pages.orientation import Orientation
from gcsa.tasks.recognition.predict import RecognitionPredictor
from tests.errors import raises
from tests.tasks.recognition.test_predict import Reader

DEGREES = (0, 90, 180, 270)
FONT = Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSerif.ttf"
TEXTS = [
    f"{word} ces faits paroissent incontestables, on doit"
    for word in ["cerveau", "Tous", "qui", "si", "nous", "peine", "mol"]
]


@pytest.fixture(scope="module")
def page() -> Image.Image:
    """Seven lines of print on a grey page with a dark border at its left, as a scanner gives it."""
    sheet = np.full((620, 900), 200, np.uint8)
    sheet[:, :60] = 30
    for i, (_, image) in enumerate(set_lines(TEXTS, [FONT], seed=1)):
        small = np.asarray(image.resize((int(image.width * 0.5), int(image.height * 0.5))))[:, :700]
        top = 60 + 75 * i
        sheet[top : top + small.shape[0], 120 : 120 + small.shape[1]] = np.minimum(small, 200)
    return Image.fromarray(sheet)


@pytest.fixture
def scans(page: Image.Image, tmp_path: Path) -> dict[int, Path]:
    for degrees in DEGREES:
        Image.fromarray(np.rot90(np.asarray(page), degrees // 90)).save(tmp_path / f"{degrees}.png")
    return {degrees: tmp_path / f"{degrees}.png" for degrees in DEGREES}


def seen(degrees: int) -> Orientation:
    return Orientation(degrees, tuple(float(degrees == 90 * k) for k in range(4)), False)


def see_border(grey: np.ndarray) -> Orientation:
    """In the place of the network: the dark border of `page`, upright at its left."""
    sides = grey[:, :60], grey[-60:], grey[:, -60:], grey[:60]
    return seen(90 * int(np.argmin([side.mean() for side in sides])))


def test_a_page_is_cut_from_the_same_pixels_in_any_orientation(
    scans: dict[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "find_orientation", see_border)
    found = {degrees: PageFinder()(Source(file)) for degrees, file in scans.items()}
    assert len(found[0]) == len(TEXTS)
    for degrees in DEGREES:
        assert {line.orientation for line in found[degrees]} == {degrees}
        for a, b in zip(found[0], found[degrees], strict=True):
            assert torch.equal(read_line(a), read_line(b))
    assert {line.orientation for line in PageFinder(upright=True)(Source(scans[180]))} == {0}


def test_where_the_network_misleads_reading_decides(scans: dict[int, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are found at any angle, and their text says which is the first."""
    predictor = gcsa.load("gcsa_ocr_tiny.print")
    for wrong in DEGREES:
        monkeypatch.setattr(layout, "find_orientation", lambda grey, wrong=wrong: seen(wrong))
        page = predictor.predict(scans[90])
        assert text_scores([reading.text for reading in page], TEXTS).cer < 0.1
        assert {reading.orientation for reading in page} == {90}


def test_a_line_at_a_right_angle_stays_one(page: Image.Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the margin of an upright page, read upwards or downwards."""
    monkeypatch.setattr(layout, "find_orientation", lambda grey: seen(0))
    predictor = gcsa.load("gcsa_ocr_tiny.print")
    (_, note), *_ = set_lines(["les insectes et les mollusques"], [FONT], seed=1)
    note = note.resize((note.width // 2, note.height // 2))
    for degrees in (90, 270):
        wide = Image.new("L", (1000, 620), 200)
        wide.paste(page)
        wide.paste(note.rotate(degrees, expand=True, fillcolor=200), (930, 60))
        *text, last = predictor.predict(wide)
        assert [reading.orientation for reading in text] == [0] * len(TEXTS)
        assert last.orientation == degrees
        assert text_scores([last.text], ["les insectes et les mollusques"]).cer < 0.15


@pytest.mark.parametrize("kind", ["16 bits", "12 of 16 bits", "floats", "transparent"])
def test_a_page_of_any_depth_has_the_same_lines(
    page: Image.Image, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "find_orientation", lambda grey: seen(0))
    levels = np.maximum(np.asarray(page), 20)
    see_through = Image.new("RGBA", page.size)
    see_through.putalpha(Image.fromarray(255 - levels))
    scan = {
        "16 bits": Image.fromarray(levels.astype(np.uint16) * 257),
        "12 of 16 bits": Image.fromarray(levels.astype(np.uint16) * 16),
        "floats": Image.fromarray(levels.astype(np.float32) / 255),
        "transparent": see_through,
    }[kind]
    scan.save(tmp_path / f"page.{'tif' if kind == 'floats' else 'png'}")
    (file,) = tmp_path.iterdir()
    assert len(PageFinder()(Source(file))) == len(TEXTS)
    assert len(RecognitionPredictor(Reader()).predict(scan)) == len(TEXTS)


@dataclass
class Skewed:
    """In the place of kraken: the known lines of a page, wherever it is rotated about its centre."""

    page: Image.Image
    degrees: float
    made_level: bool
    searched: list[tuple[int, int]] = field(default_factory=list)

    def lines(self, degrees: float, size: tuple[int, int]) -> list[FoundLine]:
        """The lines on the page rotated by `degrees`, which then has this size."""
        cos, sin = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
        old, new = (np.array(size) - 1) / 2, (np.array(self.page.size) - 1) / 2

        def moved(*points: tuple[float, float]) -> Points:
            x, y = (np.array(points) - new).T
            return tuple((round(u), round(v)) for u, v in np.stack([x * cos + y * sin, y * cos - x * sin], 1) + old)

        tops = [52 + 75 * i for i in range(len(TEXTS))]
        boxes = [moved((110, y), (830, y), (830, y + 50), (110, y + 50)) for y in tops]
        return [FoundLine(box, moved((115, y + 40), (825, y + 40))) for box, y in zip(boxes, tops, strict=True)]

    def __call__(self, image: Image.Image) -> list[FoundLine]:
        self.searched.append(image.size)
        return self.lines(0.0 if self.made_level else self.degrees, image.size)


@pytest.mark.parametrize(("degrees", "made_level"), [(0.5, False), (4.0, True), (-12.0, True)])
def test_kraken_searches_a_skewed_page_without_the_skew(
    degrees: float, made_level: bool, page: Image.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The places of its lines are those on the scan."""
    scan = page.convert("RGB").rotate(degrees, Image.Resampling.BICUBIC, expand=True, fillcolor=(200,) * 3)
    monkeypatch.setattr(by_kraken, "check_kraken", lambda: None)
    monkeypatch.setattr(by_kraken, "_segment", segment := Skewed(page, degrees, made_level))
    lines = by_kraken.lines_by_kraken(np.asarray(scan))
    assert (segment.searched == [scan.size]) == (not made_level)
    assert len(segment.searched) == 1
    for line, truth in zip(lines, segment.lines(degrees, scan.size), strict=True):
        for points, true in zip(line, truth, strict=True):
            assert np.abs(np.subtract(points, true)).max() <= 1


@pytest.mark.parametrize("degrees", [-12.0, 4.0])
def test_lines_of_a_skewed_page_are_straightened(degrees: float, page: Image.Image) -> None:
    scan = (
        page.crop((60, 0, 900, 620))
        .convert("RGB")
        .rotate(degrees, Image.Resampling.BICUBIC, expand=True, fillcolor=(200,) * 3)
    )
    pixels = np.asarray(scan)
    lines = detect_lines(pixels)
    assert len(lines) == len(TEXTS)
    grey = np.asarray(scan.convert("L"))
    heights = [cut(grey, line.polygon, line.baseline)[0].shape[0] for line in lines]
    assert max(heights) < 60


def test_a_bent_line_is_straightened(page: Image.Image) -> None:
    """As on the photograph of an open book: its lines rise by more than their height, and fall again."""
    grey = np.asarray(page)[:, 100:]
    columns = np.arange(grey.shape[1])
    shift = (40 * np.sin(np.pi * columns / len(columns))).round().astype(int)
    bent = np.full((grey.shape[0] + 40, grey.shape[1]), 200, np.uint8)
    for column in columns:
        bent[40 - shift[column] : 40 - shift[column] + grey.shape[0], column] = grey[:, column]
    lines = detect_lines(np.stack([bent] * 3, 2))
    assert len(lines) == len(TEXTS)
    assert max(cut(bent, line.polygon, line.baseline)[0].shape[0] for line in lines) < 62
    assert all(len(line.polygon) > 4 for line in lines)


@pytest.mark.parametrize("deviation", [2, 12])
def test_a_page_of_paper_has_no_lines(deviation: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Grain of the paper or what shines through, which a finder may take for lines, and nothing at all; from a file and from memory."""
    grain = 220 + np.random.default_rng(0).normal(0, deviation, (500, 600)).clip(-60, 60)
    Image.fromarray(grain.clip(0, 255).astype(np.uint8)).save(tmp_path / "verso.png")
    box = ((50, 50), (550, 50), (550, 90), (50, 90))
    for lines in ([], [FoundLine(box, box[2:])]):
        assert find_lines(Source(tmp_path / "verso.png"), PageFinder(find=lambda page, lines=lines: lines)) == []
    assert RecognitionPredictor(Reader()).predict([str(tmp_path / "verso.png"), grain.astype(np.uint8)]) == [[], []]


def test_where_the_search_fails_the_page_is_named(scans: dict[int, Path]) -> None:
    def fail(image: np.ndarray) -> list[FoundLine]:
        raise IndexError("list index out of range")

    (line,) = find_lines(Source(scans[0]), PageFinder(find=fail))
    assert str(scans[0]) in line.error
    assert "IndexError" in line.error


def test_pages_are_predicted_in_any_orientation(scans: dict[int, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """From a file and from memory; each reading says the orientation of its line on the scan."""
    predictor = RecognitionPredictor(Reader())
    monkeypatch.setattr(layout, "find_orientation", see_border)
    from_files, from_memory = (
        predictor.predict([opened(file) for file in scans.values()]) for opened in (str, Image.open)
    )
    assert from_files == from_memory
    assert [len(page) for page in from_files] == [len(TEXTS)] * 4
    own = [reading.orientation for reading in from_files[0]]
    for degrees, page in zip(DEGREES, from_files, strict=True):
        assert [reading.text for reading in page] == [reading.text for reading in from_files[0]]
        assert [(reading.orientation - degrees) % 360 for reading in page] == own


@pytest.mark.parametrize(("strength", "kept"), [(0.25, 0), (0.5, 1)])
def test_print_that_shines_through_is_left_out_and_grey_print_is_not(
    strength: float, kept: int, scans: dict[int, Path], tmp_path: Path
) -> None:
    """The stamp of arXiv has half of the contrast of black print."""
    grey = np.asarray(Image.open(scans[0])).copy()
    faint = grey[60:110, 120:820].astype(float)[:, ::-1]
    grey[570:620, 120:820] = (200 - (200 - faint) * strength).astype(np.uint8)
    Image.fromarray(grey).save(tmp_path / "both.png")
    found = detect_lines(np.stack([grey] * 3, 2))
    assert len(found) == len(TEXTS) + 1
    assert len(PageFinder(upright=True)(Source(tmp_path / "both.png"))) == len(TEXTS) + kept
    assert layout.printed(found[:2], grey) == [True, True]


@pytest.mark.parametrize("at_left", [False, True])
def test_the_edge_of_the_facing_page_is_left_out_and_line_numbers_are_not(
    at_left: bool, page: Image.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "find_orientation", lambda grey: seen(0))
    text = np.asarray(page)[:, 60:]
    facing, paper = text[:, 60:95], np.full((len(text), 60), 200, np.uint8)

    def count(*parts: np.ndarray) -> int:
        sheet = np.concatenate(parts[::-1] if at_left else parts, 1)
        return len(RecognitionPredictor(Reader()).predict(Image.fromarray(sheet)))

    assert count(text, paper, facing[:, ::-1] if at_left else facing) == len(TEXTS)
    assert count(text, paper, facing, paper) == 2 * len(TEXTS)
    short = text.copy()
    short[:300, 100:] = 200  # ends of paragraphs on a page whose own lines are cut
    assert count(short[:, 75:]) == len(TEXTS)


@pytest.mark.parametrize(("finder", "missing"), [("ppocr", "rapidocr"), ("kraken", "kraken")])
def test_what_finds_lines_must_be_there_for_pages_only(
    finder: str, missing: str, scans: dict[int, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_page(Source(scans[0]))
    for module in (detector, by_kraken):
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    Image.new("L", (300, 40), 255).save(tmp_path / "line.png")
    assert layout.finder_of(finder, [Source(tmp_path / "line.png")])
    with raises("detector.missing" if finder == "ppocr" else "kraken.missing"):
        layout.finder_of(finder, [Source(tmp_path / "line.png"), Source(scans[0])])
    detector._session.cache_clear()
    (source,) = find_lines(Source(scans[0]), PageFinder(find=layout.finder_of(finder, [])))
    assert f"needs {missing}" in source.error
    ((transcript,),) = RecognitionPredictor(Reader()).transcribe([[source]])
    assert transcript.error == source.error


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--beams", "4"], "drop --beams"),
        (["{line}"], "is none: take --format text or json"),
        (["{90}"], "name a folder"),
    ],
)
def test_what_cannot_be_written_as_a_page_is_refused_before_work(
    options: list[str],
    says: str,
    scans: dict[int, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Image.new("L", (300, 40), 255).save(tmp_path / "line.png")
    names = {"{line}": str(tmp_path / "line.png"), "{90}": str(scans[90])}
    monkeypatch.setattr("gcsa.load", lambda *args: pytest.fail("the model was loaded"))
    arguments = [names.get(option, option) for option in options]
    with pytest.raises(SystemExit, match="2"):
        command.main(["gcsa_ocr_tiny.fr17", str(scans[0]), *arguments, "--format", "alto"])
    assert says in capsys.readouterr().err
