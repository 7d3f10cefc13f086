"""Whole pages by the command: the same text at any quarter turn, and files of every format that say where it is."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from lxml import etree
from PIL import Image

import gcsa
from gcsa.cli import transcribe
from gcsa.tasks.recognition.evaluate import text_scores
from gcsa.tasks.recognition.pages.page_xml import read_page
from tests.tasks.recognition.schemas import PAGES, check

PAGE = PAGES / "fr_print_page.jpg"
TEXT = Path(__file__).with_name("fr_print_page.txt")
MODEL = "gcsa_ocr_tiny.print"
SCHEMAS = [("page", "pagecontent.xsd"), ("alto", "alto-4-3.xsd")]
with_page = pytest.mark.skipif(not PAGE.is_file(), reason=f"no {PAGE}: set GCSA_DATA")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


def read(folder: Path, turn: int, kind: str) -> Path:
    """What gcsa transcribe writes of the page scanned at `turn` degrees."""
    scan, out = folder / f"{turn}.png", folder / f"{turn}.{kind}"
    if not out.exists():
        Image.fromarray(np.rot90(np.asarray(Image.open(PAGE).convert("RGB")), turn // 90)).save(scan, compress_level=1)
        assert transcribe.main([MODEL, str(scan), "--format", kind, "--output", str(out)]) == 0
    return out


@with_page
def test_a_page_reads_the_same_at_any_quarter_turn(folder: Path) -> None:
    texts = {turn: read(folder, turn, "text").read_text(encoding="utf-8") for turn in (0, 90, 180, 270)}
    assert len(set(texts.values())) == 1
    assert text_scores([texts[0].strip()], [TEXT.read_text(encoding="utf-8").strip()]).cer <= 0.08
    lines = [json.loads(line) for line in read(folder, 90, "json").read_text(encoding="utf-8").splitlines()]
    assert {line["orientation"] for line in lines} == {90}
    assert [line["line"] for line in lines] == [*range(1, len(lines) + 1)]


@with_page
@pytest.mark.parametrize("turn", [0, 270])
@pytest.mark.parametrize(("kind", "schema"), SCHEMAS)
def test_xml_is_valid_and_says_where_each_character_is(folder: Path, kind: str, schema: str, turn: int) -> None:
    out = read(folder, turn, kind)
    check(out, schema)
    xml = out.with_suffix(f".{kind}.xml")
    xml.write_bytes(out.read_bytes())
    lines = read_page(xml)
    assert [line.text for line in lines] == read(folder, 0, "text").read_text(encoding="utf-8").splitlines()
    root = etree.parse(xml)
    spaces = sum(line.text.count(" ") for line in lines)
    assert len([*root.iter("{*}Glyph")]) == sum(len(line.text) for line in lines) - spaces
    for line in lines:
        assert line.polygon is not None
        assert line.baseline is not None
        along = np.subtract(line.baseline[-1], line.baseline[0])
        assert np.argmax([*along, *-along]) == {0: 0, 270: 1}[turn], "in the direction of reading"
    angles = {
        region.get("orientation") or region.get("ROTATION") for region in root.iter("{*}TextRegion", "{*}TextBlock")
    }
    assert angles == {None if turn == 0 else "-90" if kind == "page" else "270"}
    assert {"gcsa", gcsa.__version__, MODEL} <= set(re.findall(r"[\w.]+", xml.read_text(encoding="utf-8")))


@pytest.mark.skipif(not PAGES.is_dir(), reason=f"no {PAGES}: set GCSA_DATA")
@pytest.mark.parametrize(("kind", "schema"), SCHEMAS)
def test_blank_pages_of_a_tiff_are_valid_and_empty(kind: str, schema: str, tmp_path: Path) -> None:
    blank = Image.new("L", (500, 700), 235)
    blank.save(tmp_path / "book.tif", save_all=True, append_images=[blank.rotate(90, expand=True)])
    arguments = [MODEL, str(tmp_path / "book.tif"), "--format", kind, "--output", f"{tmp_path / 'out'}/"]
    assert transcribe.main(arguments) == 0
    for name in ("book-1.xml", "book-2.xml"):
        check(tmp_path / "out" / name, schema)
        assert read_page(tmp_path / "out" / name) == []
    assert kind == "page" or 'PHYSICAL_IMG_NR="2"' in (tmp_path / "out" / "book-2.xml").read_text(encoding="utf-8")


@with_page
@pytest.mark.parametrize(("kind", "schema"), SCHEMAS)
def test_text_goes_back_into_xml(folder: Path, tmp_path: Path, kind: str, schema: str) -> None:
    given, filled = tmp_path / "given.xml", tmp_path / "filled.xml"
    given.write_bytes(read(folder, 0, kind).read_bytes())
    (tmp_path / "0.png").write_bytes((folder / "0.png").read_bytes())
    assert transcribe.main([MODEL, str(given), "--format", kind, "--output", str(filled)]) == 0
    check(filled, schema)
    assert [line.text for line in read_page(filled)] == [line.text for line in read_page(given)]
