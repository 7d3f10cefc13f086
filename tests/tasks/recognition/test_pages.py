"""A page is read the same however it was scanned: its lines decide together how it lies."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from gcsa.cli import transcribe as command
from gcsa.groups import group as make_group
from gcsa.tasks.recognition import pages
from gcsa.tasks.recognition.data.line_image import Line, read_line, turn_points
from gcsa.tasks.recognition.data.typeset import list_fonts, set_lines
from gcsa.tasks.recognition.pages.layout import PageFinder, lines_stand
from gcsa.tasks.recognition.read_lines import read_lines
from gcsa.tasks.recognition.reading import Reading, most_confident, turn_of_page
from gcsa.tasks.recognition.transcribe import find_lines, is_page, transcribe

TURNS = (0, 90, 180, 270)
FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
TEXTS = [
    f"{word} ces faits paroissent incontestables, on doit"
    for word in ["cerveau", "Tous", "qui", "si", "nous", "peine", "mol"]
]


@dataclass
class Found:
    """As far as it is used, kraken's line."""

    boundary: list[tuple[int, int]]
    baseline: list[tuple[int, int]]


@dataclass
class Segmentation:
    lines: list[Found]
    regions: dict[str, list[Any]] = field(default_factory=dict)
    line_orders: list[Any] = field(default_factory=list)


class Reader(torch.nn.Module):
    """Reads the darkest third of a line, above, below, left or right: with confidence 0.9 the frame where it lies below.

    A line whose thirds are equal has no frame of its own: upside down it is read with 0.95.
    """

    group, height, stride = make_group("c4"), 40, 8

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def read_frames(self, images: Tensor, orientation: str, beams: int) -> list[dict[int, Reading]]:
        turns = [0] if orientation == "upright" else [0, 180] if images.shape[2] == self.height else [90, 270]
        return [{turn: self._read(torch.rot90(image[0], -turn // 90), turn) for turn in turns} for image in images]

    def _read(self, line: Tensor, turn: int) -> Reading:
        third = line.shape[0] // 3
        below, above = line[-third:].mean(), line[:third].mean()
        name = f"{line.shape[1]} wide, {float(below - above):.1f}"
        if abs(below - above) < 0.01:
            return Reading(name, 0.95 if turn == 180 else 0.6, turn)
        return Reading(name, 0.9 if below > above else 0.5, turn)


def line(width: int, alike: bool = False) -> Tensor:
    """Ink (1, 40, width) whose frame is known, or one that looks alike on its head."""
    ink = torch.zeros(1, 40, width)
    ink[:, 28:, :] = 1
    if alike:
        ink[:, :12, :] = 1
    return ink


def read(inks: list[Tensor], turn: int, of_page: bool) -> list[Any]:
    turned: list[Callable[[], Tensor]] = [lambda ink=ink: torch.rot90(ink, turn // 90, (1, 2)) for ink in inks]  # type: ignore[misc]
    return read_lines(Reader(), turned, [0] * len(inks) if of_page else (), "any")  # type: ignore[arg-type]


@pytest.mark.parametrize("turn", TURNS)
def test_lines_of_a_page_share_its_frame(turn: int) -> None:
    inks = [line(200), line(64, alike=True), line(240)]
    together = read(inks, turn, of_page=True)
    assert [reading.turn for reading in together] == [turn] * 3
    assert [reading.text for reading in together] == [reading.text for reading in read(inks, 0, of_page=True)]


def test_a_line_by_itself_may_be_read_on_its_head() -> None:
    inks = [line(200), line(64, alike=True)]
    assert [reading.turn for reading in read(inks, 0, of_page=False)] == [0, 180]


@pytest.mark.parametrize("turn", TURNS)
def test_a_line_that_is_higher_than_long_is_read_in_the_frame_of_its_page(turn: int) -> None:
    number = torch.zeros(1, 40, 24)
    number[:, 30:] = 1
    readings = read([line(200), number, line(240)], turn, of_page=True)
    assert [reading.turn for reading in readings] == [turn] * 3
    assert readings[1].text.startswith("24 wide")
    assert not read([number], turn, of_page=False)[0].text.startswith("24 wide")


def test_a_long_line_across_keeps_its_own_frame() -> None:
    margin = torch.rot90(line(160), 1, (1, 2))
    assert [reading.turn for reading in read([line(200), margin, line(240)], 0, of_page=True)] == [0, 90, 0]


def test_a_line_that_cannot_be_read_leaves_the_others() -> None:
    def broken() -> Tensor:
        raise ValueError("torn")

    good = line(200)
    readings = read_lines(Reader(), [broken, lambda: good], [0, 0], "any")  # type: ignore[arg-type]
    assert isinstance(readings[0], ValueError)
    assert isinstance(readings[1], Reading)


def test_equal_readings_are_told_apart_by_their_text() -> None:
    a, b = Reading("a", 0.9, 0), Reading("b", 0.900001, 180)
    assert most_confident({0: a, 180: b}) == most_confident({0: b, 180: a}) == a
    assert most_confident({0: a, 180: Reading("b", 0.91)}).text == "b"


def test_votes_count_with_length_and_confidence() -> None:
    long = {0: Reading("", 0.8), 180: Reading("", 0.6)}
    short = {0: Reading("", 0.1), 180: Reading("", 0.9)}
    assert turn_of_page([long, short], [50, 5]) == 0
    assert turn_of_page([long, short], [5, 50]) == 180
    assert turn_of_page([{90: Reading("", 0.5), 270: Reading("", 0.4)}], [9]) == 90
    assert turn_of_page([], []) == 0


@pytest.fixture(scope="module")
def page() -> Image.Image:
    """Seven lines of print on a grey page with a dark border, as a scanner gives it."""
    sheet = np.full((620, 900), 200, np.uint8)
    sheet[:, :60] = 30
    for i, (_, image) in enumerate(set_lines(TEXTS, [FONTS / "DejaVuSerif.ttf"], seed=1)):
        small = np.asarray(image.resize((int(image.width * 0.5), int(image.height * 0.5))))[:, :700]
        top = 60 + 75 * i
        sheet[top : top + small.shape[0], 120 : 120 + small.shape[1]] = np.minimum(small, 200)
    return Image.fromarray(sheet)


@pytest.fixture
def scans(page: Image.Image, tmp_path: Path) -> dict[int, Path]:
    for turn in TURNS:
        Image.fromarray(np.rot90(np.asarray(page), turn // 90)).save(tmp_path / f"{turn}.png")
    return {turn: tmp_path / f"{turn}.png" for turn in TURNS}


@pytest.fixture
def finds_rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In the place of kraken's: the rows that hold ink, as of an upright page, whichever way it stands."""

    def segment(image: Image.Image) -> Segmentation:
        ink = np.asarray(image.convert("L"))[:, 70:] < 120
        rows = np.flatnonzero(np.diff(np.pad(ink.any(1).astype(int), 1)))
        lines = []
        for top, bottom in rows.reshape(-1, 2).tolist():
            box = [(70, top), (image.width - 1, top), (image.width - 1, bottom), (70, bottom)]
            lines.append(Found(box, [(70, bottom), (image.width - 1, bottom)]))
        return Segmentation([line for line in lines if line.boundary[2][1] - line.boundary[0][1] > 8])

    monkeypatch.setattr(pages, "segment", segment)
    return iter(())


def test_profiles_tell_lines_that_stand(page: Image.Image) -> None:
    levels = np.asarray(page)
    assert [lines_stand(np.rot90(levels, turn // 90)) for turn in TURNS] == [False, True, False, True]


@pytest.mark.usefixtures("finds_rows")
def test_a_page_is_cut_from_the_same_pixels_at_any_turn(
    scans: dict[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A page on its head has its border on the other side, so its lines begin elsewhere: the vote must turn it first.
    def vote(self: PageFinder, lines: list[Line]) -> int:
        first = min(lines, key=lambda line: turn_points(line.polygon or (), -line.turn, _shape(line))[0][1])
        left = np.rot90(np.asarray(Image.open(first.image)), -first.turn // 90)[:, :30]
        return 0 if left.mean() < 60 else 180

    monkeypatch.setattr(PageFinder, "_vote", vote)
    found = {}
    for turn, file in scans.items():
        finder = PageFinder(Reader(), "any")  # type: ignore[arg-type]
        found[turn] = finder(file)
        assert {line.turn for line in found[turn]} == {turn}
        segmentation = finder.segmentations[file]
        assert [tuple(map(tuple, line.boundary)) for line in segmentation.lines] == [
            tuple((int(x), int(y)) for x, y in line.polygon or ()) for line in found[turn]
        ]
    assert len(found[0]) == len(TEXTS)
    for turn in TURNS:
        for a, b in zip(found[0], found[turn], strict=True):
            assert torch.equal(read_line(a), read_line(b))
    as_it_lies = PageFinder(Reader(), "upright")(scans[180])  # type: ignore[arg-type]
    assert {line.turn for line in as_it_lies} == {0}


def _shape(line: Line) -> tuple[int, ...]:
    return np.asarray(Image.open(line.image)).shape


@pytest.mark.usefixtures("finds_rows")
def test_print_that_shines_through_is_left_out(scans: dict[int, Path], tmp_path: Path) -> None:
    levels = np.asarray(Image.open(scans[0])).copy()
    faint = levels[60:110, 120:820].astype(float)[:, ::-1]
    levels[585:610, 120:820] = (200 - (200 - faint) * 0.45).astype(np.uint8)[10:35]
    Image.fromarray(levels).save(tmp_path / "both.png")
    finder = PageFinder(Reader(), "upright")  # type: ignore[arg-type]
    found = pages.segment(Image.open(tmp_path / "both.png"))
    assert len(found.lines) == len(TEXTS) + 1
    assert len(finder(tmp_path / "both.png")) == len(TEXTS)
    assert len(pages.printed(replace(found, lines=found.lines[:2]), levels).lines) == 2


def test_a_page_is_never_read_as_a_line(
    scans: dict[int, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert is_page(scans[0])
    (source,) = find_lines([scans[0]])
    assert "kraken: pip install 'gcsa-vit[kraken]'" in source.error
    (transcript,) = transcribe(Reader(), [source])  # type: ignore[arg-type]
    assert transcript.error == source.error
    monkeypatch.setattr(command, "has_kraken", lambda: False)
    with pytest.raises(SystemExit, match="2"):
        command.main(["gcsa_ocr_tiny.fr17", str(scans[0]), "--format", "page"])
    assert "written by kraken, which is not installed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--beams", "4"], "drop --beams"),
        (["{line}"], "is none: take --format text or json"),
        (["{90}"], "make a folder"),
        (["{90}", "--output", "nowhere/x"], "create it first"),
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
    monkeypatch.setattr(command, "has_kraken", lambda: True)
    monkeypatch.setattr(command, "load", lambda *args: pytest.fail("the model was loaded"))
    given = [names.get(option, option) for option in options]
    with pytest.raises(SystemExit, match="2"):
        command.main(["gcsa_ocr_tiny.fr17", str(scans[0]), *given, "--format", "alto"])
    assert says in capsys.readouterr().err


def test_doubtful_text_is_said_to_be_so() -> None:
    assert command._doubt([(40, 0.97), (3, 0.5)]) == ""
    assert "0.88, below 0.92" in command._doubt([(40, 0.88)])
    assert command._doubt([]) == command._doubt([(0, 0.0)]) == ""


def test_fonts_set_what_they_have_letters_for() -> None:
    fonts = [font for font in list_fonts(FONTS) if font.name == "DejaVuSerif.ttf"]
    texts = ["qu\u2019il \u017foit heu¬", "\u4e2d \u6587 \u4e2d"]
    ((text, image),) = set_lines(texts, fonts, seed=0)
    assert text == "qu\u2019il soit heu¬"
    assert image.mode == "L"
    assert image.width > 4 * image.height
    ((_, again),) = set_lines(texts, fonts, seed=0)
    ((_, other),) = set_lines(texts, fonts, seed=5)
    assert again.tobytes() == image.tobytes() != other.tobytes()
    with pytest.raises(ValueError, match="holds no fonts"):
        list_fonts(Path(__file__).parent)


def test_fonts_do_not_set_right_to_left_texts(caplog: pytest.LogCaptureFixture) -> None:
    fonts = [font for font in list_fonts(FONTS) if font.name == "DejaVuSans.ttf"]
    texts = ["\u0643\u062a\u0627\u0628", "left to right", "a \u05d0"]
    assert len(list(set_lines(texts, fonts, seed=0))) == 1
    assert "2 of 3 texts hold right-to-left letters and are not set in fonts" in caplog.text
    with pytest.raises(ValueError, match=r"data\.fonts sets text from left to right, and every training text"):
        list(set_lines(texts[::2], fonts, seed=0))


@pytest.mark.parametrize("keep", [0, 3, 2000])
def test_a_damaged_font_is_named(tmp_path: Path, keep: int) -> None:
    font = tmp_path / "bad.ttf"
    font.write_bytes((FONTS / "DejaVuSans.ttf").read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"bad\.ttf cannot be read as a font .*: remove or replace it"):
        list(set_lines(["a text"], [font], seed=0))
