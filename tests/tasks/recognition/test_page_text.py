"""Texts go into the file that the lines came from, and nothing else of it changes."""

import json
import re
import shutil
from pathlib import Path
from typing import Any
from xml.dom.minidom import parseString

import pytest
from PIL import Image

import gcsa
from gcsa.cli.transcribe import main
from gcsa.tasks.recognition.data.charset import normalize
from gcsa.tasks.recognition.pages.inputs import LineInput, Source, find_lines, images_left_out, input_files, reason
from gcsa.tasks.recognition.pages.page_xml import read_page
from gcsa.tasks.recognition.pages.text import write_text
from gcsa.tasks.recognition.reading import Reading
from tests.errors import raises
from tests.tasks.recognition.test_page_xml import ALTO, OLD_PAGE, PAGE, alto, page

TEXTS = ["a < b & \u05e9\u05dc\u05d5\u05dd", "second"]
READINGS = [Reading(text, 0.87654) for text in TEXTS]


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    Image.new("L", (200, 100), "white").save(tmp_path / "1.png")
    return tmp_path


def written(desk: Path, content: str, readings: list[Reading | None]) -> str:
    """The new content of a file; it is also read back."""
    path = desk / "1.xml"
    path.write_text(content, encoding="utf-8")
    new = write_text(path, readings, "weights")
    path.write_text(new, encoding="utf-8")
    return new


def test_page(desk: Path) -> None:
    new = written(desk, PAGE.format(**page()), READINGS)
    assert [line.text for line in read_page(desk / "1.xml")] == TEXTS
    assert "WORD" not in new
    assert new.count("<TextEquiv") == 3, "of two lines and the region"
    assert new.count('conf="0.8765"') == 2
    assert region_text(new) == "\n".join(TEXTS)


def test_all_else_stays(desk: Path) -> None:
    style = '<TextStyle fontSize="9"/><UserDefined/>'
    before = PAGE.format(**page()).replace(
        "</Unicode></TextEquiv></TextLine>", f"</Unicode></TextEquiv>{style}</TextLine>"
    )
    before = before.replace("<TextRegion", '<!-- kept --><x:own x:a="b"/><TextRegion').replace(
        "<PcGts ", '<PcGts xmlns:x="y" '
    )
    new = written(desk, before, READINGS)

    def without_text(content: str) -> str:
        left_out = r"<TextEquiv.*?</TextEquiv>|<Word.*?</Word>|<Metadata>.*?</Metadata>"
        content = re.sub(left_out, "", content.partition("?>")[2], flags=re.S)
        return re.sub(r"\s", "", content)

    assert without_text(new) == without_text(before)
    assert f"</TextEquiv>{style}</TextLine>" in re.sub(r">\s+<", "><", new), "where the schema wants the text"


def test_a_line_that_was_not_read_stays(desk: Path) -> None:
    new = written(desk, PAGE.format(**page()), [None, READINGS[1]])
    assert "WORD" in new
    assert [line.text for line in read_page(desk / "1.xml")] == ["\u00e9t\u00e9 \u05e9\u05dc\u05d5\u05dd", "second"]


@pytest.mark.parametrize("tag", ["abbrev {offset:2; length:9; expansion:etc;}", "my-tag {offset:0; length:2;}"])
def test_what_transkribus_says_of_single_characters_goes(desk: Path, tag: str) -> None:
    custom = f'custom="readingOrder {{index:3;}} {tag} structure {{type:p;}}"'
    new = written(desk, PAGE.format(**page()).replace('id="a"', f'id="a" {custom}'), READINGS)
    assert 'custom="readingOrder {index:3;} structure {type:p;}"' in new


def region_text(content: str) -> str:
    (region,) = parseString(content).getElementsByTagName("TextRegion")
    return str(region.lastChild.firstChild.firstChild.data)


def test_a_region_keeps_its_text_where_nothing_of_it_was_read(desk: Path) -> None:
    assert region_text(written(desk, PAGE.format(**page()), [None, None])) == "REGION"
    by_hand = "<TextRegion><TextEquiv><Unicode>BY HAND</Unicode></TextEquiv></TextRegion></Page>"
    assert by_hand in written(desk, PAGE.format(**page()).replace("</Page>", by_hand), READINGS)


def test_a_region_gets_the_words_of_lines_that_were_not_read(desk: Path) -> None:
    word = "<Word><TextEquiv><Unicode>{}</Unicode></TextEquiv></Word>"
    content = PAGE.format(**page()).replace(
        "<TextEquiv><Unicode/></TextEquiv>", word.format("two") + word.format("words")
    )
    assert region_text(written(desk, content, [READINGS[0], None])) == f"{TEXTS[0]}\ntwo words"


def test_page_as_before_2013_and_with_a_prefix(desk: Path) -> None:
    written(desk, OLD_PAGE, READINGS[:1])
    assert read_page(desk / "1.xml")[0].text == TEXTS[0]
    prefixed = re.sub(r"<(/?)(?=\w)", r"<\1pc:", OLD_PAGE).replace("xmlns=", "xmlns:pc=")
    new = written(desk, prefixed, READINGS[:1])
    assert read_page(desk / "1.xml")[0].text == TEXTS[0]
    assert "<pc:TextEquiv" in new


def test_alto(desk: Path) -> None:
    shape = '<Shape><Polygon POINTS="1,2 30,2 30,40"/></Shape>'
    new = written(desk, ALTO.format(**alto(shape=shape)), READINGS[:1])
    (line,) = read_page(desk / "1.xml")
    assert (line.text, line.polygon) == (TEXTS[0], ((1, 2), (30, 2), (30, 40)))
    (string,) = parseString(new).getElementsByTagName("String")
    values = {name: string.getAttribute(name) for name in ("HPOS", "VPOS", "WIDTH", "HEIGHT", "WC")}
    assert values == {"HPOS": "10", "VPOS": "20", "WIDTH": "100", "HEIGHT": "30", "WC": "0.8765"}
    assert not parseString(new).getElementsByTagName("HYP")


def test_a_file_that_changed(desk: Path) -> None:
    with raises("page.changed"):
        written(desk, PAGE.format(**page()), READINGS[:1])


def write_page(lines: Path, folder: Path) -> None:
    """1.png in `folder`, a page with two of the `lines`, and 1.xml, which says where they are."""
    image = Image.new("L", (200, 100), "white")
    image.paste(Image.open(lines / "0.png"), (10, 50))
    image.paste(Image.open(lines / "1.png"), (10, 5))
    image.save(folder / "1.png")
    content = PAGE.format(**page(points="10,50 105,50 105,89 10,89"))
    (folder / "1.xml").write_text(content.replace("10,50 190,50 190,90 10,90", "10,5 169,5 169,44 10,44"))


@pytest.fixture
def pages(folder: Path, tmp_path: Path) -> Path:
    """Two pages with an image of two lines, and ALTO of the first."""
    (tmp_path / "pages").mkdir()
    write_page(folder, tmp_path / "pages")
    shutil.copy(tmp_path / "pages/1.xml", tmp_path / "pages/2.xml")
    box = 'VPOS="{}" WIDTH="{}" HEIGHT="{}"'.format
    (tmp_path / "alto.xml").write_text(ALTO.format(**alto()).replace(box(20, 100, 30), box(50, 95, 39)))
    shutil.copy(tmp_path / "pages/1.png", tmp_path)
    return tmp_path / "pages"


def test_command(weights: Path, pages: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(weights), str(pages)]) == 0
    read = [normalize(text) for text in capsys.readouterr().out.splitlines()]
    out = tmp_path / "out"
    out.mkdir()
    assert main([str(weights), str(pages), "--format", "page", "--output", str(out)]) == 0
    Image.open(pages / "1.png").save(out / "1.png")
    assert [line.text for name in ("1.xml", "2.xml") for line in read_page(out / name)] == read
    file = tmp_path / "alto.xml"
    assert main([str(weights), str(file), "--format", "alto", "--output", str(file)]) == 0, "in its place"
    assert read_page(file)[0].text == read[0]
    assert main([str(weights), str(file), "--format", "alto", "--beams", "2", "--output", str(file)]) == 0


def test_a_line_without_a_polygon_stays_and_the_rest_is_read(
    weights: Path, pages: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = pages / "1.xml", tmp_path / "out.xml"
    file.write_text(file.read_text().replace("10,50 105,50 105,89 10,89", ""))
    assert main([str(weights), str(file), "--format", "json"]) == 1
    said, error = capsys.readouterr()
    bad, good = map(json.loads, said.splitlines())
    assert (bad.keys(), bad["line"], good["line"]) == ({"file", "line", "error"}, 1, 2)
    assert f"line a of {file} cannot be cut out (its polygon is not 3 or more points" in error
    assert main([str(weights), str(file), "--format", "page", "--output", str(out)]) == 1
    assert "WORD" in out.read_text(encoding="utf-8")
    assert good["text"] in out.read_text(encoding="utf-8")


def test_what_cannot_be_read_is_listed_and_the_rest_written(
    weights: Path, pages: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = pages / "1.xml", tmp_path / "out.xml"
    file.write_text(file.read_text().replace("10,50 105,50 105,89 10,89", "110,50 190,50 190,89 110,89"))
    assert main([str(weights), str(file), "--format", "page", "--output", str(out)]) == 1
    assert "1 of 2 could not be read" in capsys.readouterr().err
    Image.open(pages / "1.png").save(tmp_path / "1.png")
    blank, read = read_page(out)
    assert blank.text == read_page(file)[0].text
    assert read.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["alto.xml", "--format", "page"], "alto.xml is written as it came: take --format alto, not page"),
        (["pages/1.xml", "--format", "alto"], "1.xml is written as it came: take --format page, not alto"),
        (["pages/1.xml", "--output", "pages/1.xml"], "pages/1.xml is one of the inputs, and would be overwritten"),
        (["pages", "--format", "page"], "2 pages are written as a file each: name a folder"),
        (["pages/1.png", "--format", "page"], "1.png is none: take --format text or json"),
        (["missing.xml", "--format", "page"], "missing.xml"),
    ],
)
def test_refused(
    weights: Path,
    pages: Path,
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(pages.parent)
    Path("bad.xml").write_text("<PcGts>")
    with pytest.raises(SystemExit, match="2"):
        main([str(weights), *arguments])
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err


def volume(pages: Path) -> Path:
    """Three pages: 1.xml, 2.xml, which is blank, and 3.xml."""
    shutil.copy(pages / "2.xml", pages / "3.xml")
    lines = re.compile(r"<TextLine.*</TextLine>", re.S)
    (pages / "2.xml").write_text(lines.sub("", (pages / "1.xml").read_text()))
    return pages


@pytest.mark.parametrize(("kind", "ending"), [("text", "txt"), ("json", "jsonl"), ("page", "xml")])
def test_a_folder_is_written_page_by_page_and_resumes(
    kind: str,
    ending: str,
    weights: Path,
    pages: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    volume(pages)
    out = tmp_path / "out"
    arguments = [str(weights), str(pages), "--format", kind, "--output", f"{out}/"]
    seen: list[str] = []

    def interrupted(source: Source, *options: Any) -> list[LineInput]:
        seen.append(source.file.stem)
        if seen == ["1", "2", "3"]:
            raise KeyboardInterrupt
        return find_lines(source, *options)

    monkeypatch.setattr("gcsa.tasks.recognition.folder.find_lines", interrupted)
    with pytest.raises(SystemExit, match="130"):
        main(arguments)
    assert sorted(file.name for file in out.iterdir()) == [f"1.{ending}", f"2.{ending}", "gcsa_transcribe.ledger"]
    first = (out / f"1.{ending}").read_bytes()
    capsys.readouterr()
    assert main(arguments) == 0
    assert "2 of 3" in capsys.readouterr().err
    assert seen[3:] == ["3"]
    assert main(arguments) == 0
    assert seen[4:] == []
    with pytest.raises(SystemExit, match="2"):
        main([*arguments, "--normalize", "NFD"])
    assert "made with --normalize left out (now NFD)" in capsys.readouterr().err
    assert main([*arguments, "--normalize", "NFD", "--overwrite"]) == 0
    assert seen[4:] == ["1", "2", "3"]
    if kind == "page":
        Image.open(pages / "1.png").save(out / "1.png")
        assert [len(read_page(out / f"{i}.xml")) for i in (1, 2, 3)] == [2, 0, 2]
    else:
        assert (out / f"1.{ending}").read_bytes() == first
        assert (out / f"2.{ending}").read_bytes() == b""


@pytest.mark.parametrize("kind", ["text", "page"])
def test_one_bad_page_costs_one_line(
    kind: str, weights: Path, pages: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    volume(pages)
    (pages / "0.xml").write_text("<PcGts><Page>")
    (pages / "1a.xml").write_text("<html>not found</html>")
    out = tmp_path / "out"
    assert main([str(weights), str(pages), "--format", kind, "--output", f"{out}/"]) == 1
    assert sorted(file.stem for file in out.iterdir()) == ["1", "2", "3", "gcsa_transcribe"]
    *said, count = capsys.readouterr().err.splitlines()
    assert count == "2 of 7 could not be read"
    assert [name for line in said for name in ("0.xml", "1a.xml") if line.startswith(str(pages / name))] == [
        "0.xml",
        "1a.xml",
    ]


def test_unsure_and_blank_pages_are_named(weights: Path, pages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """These weights are random."""
    volume(pages)
    assert main([str(weights), str(pages)]) == 0
    *unsure, blank = capsys.readouterr().err.splitlines()
    assert str(pages / "2.xml") in blank
    for name, line in zip(("1.xml", "3.xml"), unsure, strict=True):
        assert str(pages / name) in line
        assert "--orientation upright" in line


def test_images_that_no_page_names_are_told(
    weights: Path, pages: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder of XML pages hides the other images in it; those that a page names by another stem are not told."""
    volume(pages)
    Image.open(pages / "1.png").save(pages / "a & b.png")
    (pages / "2.xml").write_text((pages / "2.xml").read_text().replace("1.png", "a &amp; b.png"))
    Image.open(pages / "1.png").save(pages / "cover.jpg")
    (pages / "rest.pdf").write_bytes(b"%PDF")
    assert images_left_out([pages]) == [pages / "cover.jpg", pages / "rest.pdf"]
    assert images_left_out([pages / "1.xml"]) == []
    assert images_left_out([pages.parent]) == images_left_out([pages]), "pages in a folder inside"
    assert set(input_files(pages)) < set(input_files(pages.parent))
    main([str(weights), str(pages), "--output", f"{tmp_path}/new/out/"])
    assert str(pages / "cover.jpg") in capsys.readouterr().err
    assert (tmp_path / "new" / "out" / "1.txt").is_file(), "folders are made, as by gcsa segment"


def test_every_page_of_a_tiff_is_read(weights: Path, folder: Path, tmp_path: Path) -> None:
    images = [Image.open(folder / f"{i}.png") for i in range(3)]
    images[0].save(tmp_path / "book.tif", save_all=True, append_images=images[1:])
    out = tmp_path / "out"
    assert (
        main(
            [
                str(weights),
                str(tmp_path / "book.tif"),
                *map(str, sorted(folder.glob("[012].png"))),
                "--output",
                f"{out}/",
            ]
        )
        == 0
    )
    for i in range(3):
        assert (out / f"book-{i + 1}.txt").read_text() == (out / f"{i}.txt").read_text() != "\n"


def test_an_error_names_the_page_once(tmp_path: Path) -> None:
    source = Source(tmp_path / "book.tif", 3, 3)
    assert reason(ValueError(f"{source.file} is cut off"), source) == f"{source.file}, page 3 is cut off"
    assert reason(ValueError("is cut off"), source) == f"{source.file}, page 3: is cut off"


def test_every_page_of_a_pdf_is_read(weights: Path, folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    images = [Image.open(folder / f"{i}.png") for i in range(2)]
    images[0].save(tmp_path / "book.pdf", save_all=True, append_images=images[1:], resolution=300)
    out = tmp_path / "out"
    assert main([str(weights), str(tmp_path), "--output", f"{out}/"]) == 0
    assert sorted(file.name for file in out.iterdir()) == ["book-1.txt", "book-2.txt", "gcsa_transcribe.ledger"]
    assert all(file.read_text().strip() for file in out.iterdir())


METADATA = """<Metadata><Creator>TRP</Creator><Created>2016-06-16T16:57:15</Created><LastChange>2016-06-16T16:57:15</LastChange>
{comments}<MetadataItem name="a" value="b"/></Metadata><Page """


@pytest.mark.parametrize("comments", ["", "<Comments>by hand</Comments>"])
def test_page_says_who_read_it(desk: Path, comments: str) -> None:
    written(desk, PAGE.format(**page()).replace("<Page ", METADATA.format(comments=comments)), READINGS)
    (metadata,) = parseString(write_text(desk / "1.xml", READINGS, "other")).getElementsByTagName("Metadata")
    elements = [child for child in metadata.childNodes if child.nodeType == child.ELEMENT_NODE]
    assert [child.tagName for child in elements] == ["Creator", "Created", "LastChange", "Comments", "MetadataItem"]
    creator, created, changed, said = (child.firstChild.data for child in elements[:4])
    assert (creator, created) == ("TRP", "2016-06-16T16:57:15") != (creator, changed)
    *kept, ours = said.splitlines()
    assert kept == (["by hand"] if comments else [])
    assert {"gcsa", gcsa.__version__, "other"} <= set(ours.split())


@pytest.mark.parametrize(("version", "tag"), [(2, "OCRProcessing"), (4, "Processing")])
def test_alto_says_who_read_it(desk: Path, version: int, tag: str) -> None:
    by_other = f'<{tag} ID="x"/>'
    content = ALTO.format(**alto(version=version)).replace("</Description>", f"{by_other}</Description>")
    written(desk, content, READINGS[:1])
    document = parseString(write_text(desk / "1.xml", READINGS[:1], "other"))
    description = document.getElementsByTagName("Description")[0]
    other, ours = description.getElementsByTagName(tag)
    assert [description.lastChild, other.getAttribute("ID")] == [ours, "x"]
    said = {
        e.tagName: e.firstChild.data for e in ours.getElementsByTagName("*") if e.firstChild.nodeType == e.TEXT_NODE
    }
    assert (said["softwareName"], said["softwareVersion"]) == ("gcsa", gcsa.__version__)
    assert "other" in said["processingStepSettings"]


def test_nobody_read_what_nobody_could(desk: Path) -> None:
    assert "gcsa" not in written(desk, PAGE.format(**page()), [None, None])
