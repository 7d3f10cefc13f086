"""hOCR says where lines and words are, and any XML parser reads it."""

import os
import re
from pathlib import Path
from xml.etree.ElementTree import Element, fromstring

import pytest
from PIL import Image

from gcsa.cli.transcribe import main
from gcsa.tasks.recognition.data.line_image import Line
from gcsa.tasks.recognition.pages.hocr import hocr
from gcsa.tasks.recognition.pages.inputs import LineInput, Source, Transcript
from gcsa.tasks.recognition.pages.new_xml import new_xml
from gcsa.tasks.recognition.pages.placed import PlacedLine, PlacedPage, placed_page
from gcsa.tasks.recognition.pages.words import Word
from gcsa.tasks.recognition.reading import Character, Reading
from tests.errors import raises
from tests.tasks.recognition.test_page_text import write_page
from tests.tasks.recognition.test_page_xml import ALTO, alto

BOX = (10, 20, 110, 40)


def elements(content: str, kind: str) -> list[Element]:
    return [element for element in fromstring(content.encode()).iter() if element.get("class") == kind]


def line(text: str, region: str, orientation: int = 0, baseline: tuple[float, float] | None = None) -> PlacedLine:
    words = [Word(word, 0.876, BOX) for word in text.split()]
    return PlacedLine(Reading(text, 0.9, orientation), BOX, words, region, baseline)


def test_lines_words_and_regions() -> None:
    page = PlacedPage(
        Path('a "b" & c.tif'),
        3,
        (200, 300),
        [line("a < b & c", "one", baseline=(0.01, 35.0)), line("up", "one", 90), line("<p>", "two")],
    )
    content = hocr(page, "weights & more")
    (sheet,) = elements(content, "ocr_page")
    assert sheet.get("title") == 'image "a %22b%22 & c.tif"; bbox 0 0 200 300; ppageno 2'
    assert [len(list(area.iter())) for area in elements(content, "ocr_carea")] == [10, 4], (
        "with paragraphs, lines and words"
    )
    assert [element.get("title") for element in elements(content, "ocr_line")] == [
        "bbox 10 20 110 40; baseline 0.0100 -4.9",
        "bbox 10 20 110 40; textangle 90",
        "bbox 10 20 110 40",
    ]
    words = elements(content, "ocrx_word")
    assert [word.text for word in words] == ["a", "<", "b", "&", "c", "up", "<p>"]
    assert {word.get("title") for word in words} == {"bbox 10 20 110 40; x_wconf 88"}
    ids = [element.get("id") for element in fromstring(content.encode()).iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    assert re.search(r'"ocr-system" content="gcsa \S+ with weights &amp; more"', content)


@pytest.mark.parametrize("kind", ["page", "alto"])
def test_of_xml_pages(kind: str, weights: Path, folder: Path, tmp_path: Path) -> None:
    """Of PAGE with a baseline and a region, and of ALTO, whose image is twice as large as it says."""
    write_page(folder, tmp_path)
    file = tmp_path / "1.xml"
    if kind == "page":
        baseline = '<Baseline points="10,80 105,82"/>'
        file.write_text(re.sub(r"(<Coords points=\"10,50[^>]*>)", rf"\1{baseline}", file.read_text()))
    else:
        box = 'VPOS="{}" WIDTH="{}" HEIGHT="{}"'.format
        content = ALTO.format(**alto()).replace(box(20, 100, 30), f'{box(50, 95, 39)} BASELINE="10,80 105,82"')
        file.write_text(content)
        image = Image.open(tmp_path / "1.png")
        image.resize((2 * image.width, 2 * image.height)).save(tmp_path / "1.png")
    arguments = [str(weights), str(file), "--orientation", "upright", "--output", f"{tmp_path}/out/"]
    assert main([*arguments, "--format", "hocr"]) == 0
    content = (tmp_path / "out" / "1.hocr").read_text(encoding="utf-8")
    title = str(elements(content, "ocr_line")[0].get("title"))
    assert main(arguments) == 0
    assert [word.text for word in elements(content, "ocrx_word")] == (tmp_path / "out" / "1.txt").read_text().split()
    assert (
        title
        == {
            "page": "bbox 10 50 105 89; baseline 0.0211 -9.0",
            "alto": "bbox 20 100 210 178; baseline 0.0211 -18.0",
        }[kind]
    )


@pytest.mark.parametrize("kind", ["page", "alto"])
def test_xml_of_an_image_whose_name_is_not_utf8_is_refused(kind: str, tmp_path: Path) -> None:
    """XML names the image, to be opened again."""
    with raises("image.name"):
        new_xml(Source(tmp_path / os.fsdecode(b"\xff.png")), [], kind, "")


def test_boxes_end_with_the_page(tmp_path: Path) -> None:
    """Of the polygons that stick out of it."""
    Image.new("L", (100, 60)).save(tmp_path / "1.png")
    source = Source(tmp_path / "1.png")
    polygon = ((-100.0, -5.0), (99.0, -5.0), (99.0, 20.0), (-100.0, 20.0))
    characters = tuple(Character(sign, i / 4, (i + 1) / 4, 0.9) for i, sign in enumerate("a bc"))
    line = LineInput(source, Line(source.file, polygon=polygon, baseline=((20.0, 50.0), (24.0, 5.0))), 1)
    transcript = Transcript(line, Reading("a bc", 0.9, 0, characters))
    (placed,) = placed_page(source, [transcript]).lines
    assert placed.box == (0, 0, 99, 20)
    assert placed.baseline is None, "the line was read across it"
    assert [word.box for word in placed.words] == [(0, 0, 25, 20), (49, 0, 99, 20)]


def test_refused(weights: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_page(folder, tmp_path)
    for arguments, message in (
        ([tmp_path / "1.xml", "--beams", "2"], "a beam search does not tell where"),
        ([folder / "0.png"], "0.png is none: take --format text or json"),
    ):
        with pytest.raises(SystemExit, match="2"):
            main([str(weights), "--format", "hocr", *map(str, arguments)])
        assert message in capsys.readouterr().err
