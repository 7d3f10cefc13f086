"""A page is cut into the same lines however it was scanned, with a stand-in for kraken's segmentation."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from PIL import Image

from gcsa.cli import transcribe as command
from gcsa.tasks.recognition import predict
from gcsa.tasks.recognition.data.cutting import rotate_points
from gcsa.tasks.recognition.data.line_image import read_line
from gcsa.tasks.recognition.data.typeset import set_lines
from gcsa.tasks.recognition.pages import layout, output
from gcsa.tasks.recognition.pages.inputs import Source, find_lines, is_page
from gcsa.tasks.recognition.pages.layout import Ink, PageFinder
from gcsa.tasks.recognition.pages.orientation import Orientation
from gcsa.tasks.recognition.predict import RecognitionPredictor
from gcsa.tasks.recognition.reading import PageVote
from tests.tasks.recognition.test_predict import Reader

DEGREES = (0, 90, 180, 270)
FONT = Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSerif.ttf"
TEXTS = [
    f"{word} ces faits paroissent incontestables, on doit"
    for word in ["cerveau", "Tous", "qui", "si", "nous", "peine", "mol"]
]


@dataclass
class Found:
    """kraken's line, as far as it is used."""

    boundary: list[tuple[int, int]]
    baseline: list[tuple[int, int]]


@dataclass
class Segmentation:
    lines: list[Found]
    regions: dict[str, list[Any]] = field(default_factory=dict)
    line_orders: list[Any] = field(default_factory=list)


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


@pytest.fixture
def finds_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of kraken's segmentation: the rows that hold ink."""

    def segment(image: Image.Image) -> Segmentation:
        ink = np.asarray(image.convert("L"))[:, 70:] < 120
        rows = np.flatnonzero(np.diff(np.pad(ink.any(1).astype(int), 1)))
        lines = []
        for top, bottom in rows.reshape(-1, 2).tolist():
            box = [(70, top), (image.width - 1, top), (image.width - 1, bottom), (70, bottom)]
            lines.append(Found(box, [(70, bottom), (image.width - 1, bottom)]))
        return Segmentation([line for line in lines if line.boundary[2][1] - line.boundary[0][1] > 8])

    monkeypatch.setattr(layout, "segment", segment)


def seen(degrees: int) -> Orientation:
    return Orientation(degrees, tuple(float(degrees == 90 * k) for k in range(4)), False)


def see_border(grey: np.ndarray) -> Orientation:
    """In the place of the network: the dark border of `page`, upright at its left."""
    sides = grey[:, :60], grey[-60:], grey[:, -60:], grey[:60]
    return seen(90 * int(np.argmin([side.mean() for side in sides])))


def vote(inks: list[Ink]) -> PageVote:
    """Upside down the border of the page is at the right, where the stand-in takes all rows for one line."""
    return PageVote(0 if len(inks) > 1 else 180, 0.9)


@pytest.mark.usefixtures("finds_rows")
def test_a_page_is_cut_from_the_same_pixels_in_any_orientation(scans: dict[int, Path]) -> None:
    found = {}
    for degrees, file in scans.items():
        finder = PageFinder(vote)
        found[degrees] = finder(Source(file))
        assert {line.orientation for line in found[degrees]} == {degrees}
        assert [tuple(map(tuple, line.boundary)) for line in finder.segmentation.lines] == [
            tuple((int(x), int(y)) for x, y in line.polygon or ()) for line in found[degrees]
        ]
    assert len(found[0]) == len(TEXTS)
    for degrees in DEGREES:
        for a, b in zip(found[0], found[degrees], strict=True):
            assert torch.equal(read_line(a), read_line(b))
    assert {line.orientation for line in PageFinder(None)(Source(scans[180]))} == {0}


@pytest.mark.usefixtures("finds_rows")
def test_where_the_network_misleads_reading_decides(scans: dict[int, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The axis that the network names is left only for one that is read with more confidence."""

    def unsure(inks: list[Ink]) -> PageVote:
        degrees, _ = vote(inks)
        return PageVote(degrees, 0.6 if degrees else 0.9)

    wide = (0, 90)  # the page is wider than high, and its lines lie

    def see(degrees: tuple[int, int]) -> None:
        monkeypatch.setattr(layout, "find_orientation", lambda grey: seen(degrees[int(grey.shape[0] > grey.shape[1])]))

    see(wide)
    expected = {degrees: PageFinder(vote)(Source(file)) for degrees, file in scans.items()}
    see((90, 0))
    for degrees, file in scans.items():
        assert PageFinder(unsure)(Source(file)) == expected[degrees]
        assert PageFinder(vote)(Source(file)) != expected[degrees], "0.9 is confident enough"


@dataclass
class Skewed:
    """In the place of kraken's segmentation: the known lines of a page, wherever it is rotated about its centre."""

    page: Image.Image
    degrees: float
    finds_again: bool = True
    searched: list[float] = field(default_factory=list)

    def lines(self, degrees: float, size: tuple[int, int]) -> list[Found]:
        """The lines on the page rotated by `degrees`, which then has this size."""
        cos, sin = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
        old, new = (np.array(size) - 1) / 2, (np.array(self.page.size) - 1) / 2

        def moved(*points: tuple[float, float]) -> list[tuple[int, int]]:
            x, y = (np.array(points) - new).T
            return [(round(u), round(v)) for u, v in np.stack([x * cos + y * sin, y * cos - x * sin], 1) + old]

        tops = [52 + 75 * i for i in range(len(TEXTS))]
        boxes = [moved((110, y), (830, y), (830, y + 50), (110, y + 50)) for y in tops]
        return [Found(box, moved((115, y + 40), (825, y + 40))) for box, y in zip(boxes, tops, strict=True)]

    def __call__(self, image: Image.Image) -> Segmentation:
        degrees = 0.0 if self.searched else self.degrees
        self.searched.append(degrees)
        return Segmentation(self.lines(degrees, image.size) if self.finds_again or len(self.searched) == 1 else [])


@pytest.mark.parametrize(("degrees", "searches"), [(0.5, 1), (4.0, 2), (-12.0, 2)])
def test_the_lines_of_a_skewed_page_are_searched_without_the_skew(
    degrees: float, searches: int, page: Image.Image, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Their places are those on the scan, in any orientation; the same pixels are cut, and they lie straight."""
    monkeypatch.setattr(layout, "find_orientation", lambda grey: seen(90 * (grey.shape[0] > grey.shape[1])))
    scan = page.rotate(degrees, Image.Resampling.BICUBIC, expand=True, fillcolor=200)
    inks: dict[int, list[torch.Tensor]] = {}
    for turned in (0, 90):
        Image.fromarray(np.rot90(np.asarray(scan), turned // 90)).save(tmp_path / f"{turned}.png")
        monkeypatch.setattr(layout, "segment", segment := Skewed(page, degrees))
        finder = PageFinder(lambda inks: PageVote(0, 0.9))
        lines = finder(Source(tmp_path / f"{turned}.png"))
        assert len(segment.searched) == searches
        for line, truth in zip(lines, segment.lines(degrees, scan.size), strict=True):
            for points, true in ((line.polygon, truth.boundary), (line.baseline, truth.baseline)):
                back = rotate_points(points or (), -turned, np.rot90(np.asarray(scan), turned // 90).shape)
                assert np.abs(np.subtract(back, true)).max() <= 1
        assert finder.segmentation.lines[0].boundary == [tuple(map(int, point)) for point in lines[0].polygon or ()]
        inks[turned] = [read_line(line) for line in lines]
    assert all(map(torch.equal, inks[0], inks[90]))
    heights = [ink.shape[1] for ink in inks[0]]
    assert max(heights) < 60, "50, and the rise of a flat line"


@pytest.mark.parametrize("degrees", [-14.0, -3.0, 0.0, 7.0])
def test_skew_is_that_of_the_ink_where_baselines_are_too_flat(degrees: float, page: Image.Image) -> None:
    """The dark border, which is rotated otherwise, counts for nothing."""
    scan = page.rotate(degrees, Image.Resampling.BICUBIC, expand=True, fillcolor=200)
    lines = Skewed(page, degrees).lines(degrees, scan.size)
    for line in lines:
        (x, y), (right, _) = line.baseline[0], line.baseline[-1]
        line.baseline = [(x, y), (right, round(y - (right - x) * np.tan(np.radians(0.85 * degrees))))]
    picture = np.array(scan.convert("RGB"))
    picture[:, :20] = 0
    assert layout.skew(Segmentation(lines), picture) == pytest.approx(degrees, abs=0.15)
    assert layout.skew(Segmentation(lines), np.full_like(picture, 200)) == pytest.approx(0.85 * degrees, abs=0.2)
    assert layout.skew(Segmentation([]), picture) == 0


def test_lines_that_are_not_found_again_stay(
    page: Image.Image, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page.rotate(4, Image.Resampling.BICUBIC, expand=True, fillcolor=200).save(tmp_path / "scan.png")
    monkeypatch.setattr(layout, "segment", segment := Skewed(page, 4, finds_again=False))
    assert len(PageFinder(None)(Source(tmp_path / "scan.png"))) == len(TEXTS)
    assert len(segment.searched) == 2


@pytest.mark.parametrize("deviation", [2, 12])
def test_a_page_of_paper_has_no_lines(deviation: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Grain of the paper or what shines through, which kraken takes for lines, and nothing at all; from a file and from memory."""
    grain = 220 + np.random.default_rng(0).normal(0, deviation, (500, 600)).clip(-60, 60)
    Image.fromarray(grain.clip(0, 255).astype(np.uint8)).save(tmp_path / "verso.png")
    box = [(50, 50), (550, 50), (550, 90), (50, 90)]
    monkeypatch.setattr(layout, "find_orientation", lambda grey: seen(0))
    monkeypatch.setattr(predict, "has_kraken", lambda: True)
    for lines in ([], [Found(box, box[2:])]):
        monkeypatch.setattr(layout, "segment", lambda image, lines=lines: Segmentation(lines))
        assert find_lines(Source(tmp_path / "verso.png"), find_on=PageFinder(vote)) == []
        assert RecognitionPredictor(Reader()).predict([str(tmp_path / "verso.png"), grain.astype(np.uint8)]) == [[], []]


def test_where_kraken_fails_the_page_is_named(monkeypatch: pytest.MonkeyPatch, scans: dict[int, Path]) -> None:
    def fail(image: Image.Image) -> None:
        raise IndexError("list index out of range")

    monkeypatch.setattr(layout, "segment", fail)
    (line,) = find_lines(Source(scans[0]), find_on=PageFinder(vote))
    assert str(scans[0]) in line.error
    assert "IndexError" in line.error


@pytest.mark.usefixtures("finds_rows")
def test_pages_are_predicted_in_any_orientation(scans: dict[int, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """From a file and from memory; each reading says the orientation of its line on the scan."""
    predictor = RecognitionPredictor(Reader())
    monkeypatch.setattr(predict, "has_kraken", lambda: True)
    monkeypatch.setattr(layout, "find_orientation", see_border)
    monkeypatch.setattr(RecognitionPredictor, "page_orientation", lambda self, inks: vote(inks))
    from_files, from_memory = (
        predictor.predict([opened(file) for file in scans.values()]) for opened in (str, Image.open)
    )
    assert from_files == from_memory
    assert [len(page) for page in from_files] == [len(TEXTS)] * 4
    own = [reading.orientation for reading in from_files[0]]
    for degrees, page in zip(DEGREES, from_files, strict=True):
        assert [reading.text for reading in page] == [reading.text for reading in from_files[0]]
        assert [(reading.orientation - degrees) % 360 for reading in page] == own


@pytest.mark.usefixtures("finds_rows")
def test_print_that_shines_through_is_left_out(scans: dict[int, Path], tmp_path: Path) -> None:
    grey = np.asarray(Image.open(scans[0])).copy()
    faint = grey[60:110, 120:820].astype(float)[:, ::-1]
    grey[585:610, 120:820] = (200 - (200 - faint) * 0.45).astype(np.uint8)[10:35]
    Image.fromarray(grey).save(tmp_path / "both.png")
    found = layout.segment(Image.open(tmp_path / "both.png"))
    assert len(found.lines) == len(TEXTS) + 1
    assert len(PageFinder(None)(Source(tmp_path / "both.png"))) == len(TEXTS)
    assert len(layout.printed(replace(found, lines=found.lines[:2]), grey).lines) == 2


def test_a_page_is_never_read_as_a_line(
    scans: dict[int, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert is_page(Source(scans[0]))
    (source,) = find_lines(Source(scans[0]))
    assert "kraken: pip install 'gcsa-vit[kraken]'" in source.error
    ((transcript,),) = RecognitionPredictor(Reader()).transcribe([[source]])
    assert transcript.error == source.error
    monkeypatch.setattr(output, "has_kraken", lambda: False)
    with pytest.raises(SystemExit, match="2"):
        command.main(["gcsa_ocr_tiny.fr17", str(scans[0]), "--format", "page"])
    assert "needs kraken, which is not installed" in capsys.readouterr().err


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
    monkeypatch.setattr(output, "has_kraken", lambda: True)
    monkeypatch.setattr("gcsa.load", lambda *args: pytest.fail("the model was loaded"))
    arguments = [names.get(option, option) for option in options]
    with pytest.raises(SystemExit, match="2"):
        command.main(["gcsa_ocr_tiny.fr17", str(scans[0]), *arguments, "--format", "alto"])
    assert says in capsys.readouterr().err
