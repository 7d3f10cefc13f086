from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from gcsa.tasks.recognition.data.line_image import read_line
from gcsa.tasks.recognition.data.lines import list_lines
from gcsa.tasks.recognition.pages import page_xml
from gcsa.tasks.recognition.pages.page_xml import read_page
from gcsa.tasks.recognition.pages.text import write_text
from gcsa.tasks.recognition.reading import Reading
from tests.errors import raises
from tests.fuzzing import sealed

PAGE = """<?xml version="1.0" encoding="UTF-8"?>
<PcGts xmlns="http://schema.primaresearch.org/PAGE/gts/pagecontent/{version}">
 <Page imageFilename="{image}" imageWidth="200" imageHeight="100"><TextRegion id="r"><Coords points="0,0 9,0 9,9"/>
  <TextLine id="a"><Coords points="{points}"/><Word id="w"><TextEquiv><Unicode>WORD</Unicode></TextEquiv></Word>
   <TextEquiv index="1"><Unicode>second</Unicode></TextEquiv>
   <TextEquiv index="0"><Unicode>  e\u0301t\u00e9  \u05e9\u05dc\u05d5\u05dd </Unicode></TextEquiv></TextLine>
  <TextLine id="b"><Coords points="10,50 190,50 190,90 10,90"/><TextEquiv><Unicode/></TextEquiv></TextLine>
  <TextEquiv><Unicode>REGION</Unicode></TextEquiv></TextRegion></Page></PcGts>"""
OLD_PAGE = """<PcGts xmlns="http://schema.primaresearch.org/PAGE/gts/pagecontent/2010-03-19"><Page imageFilename="1.png">
 <TextRegion><TextLine id="a"><Coords><Point x="1" y="2"/><Point x="30" y="2"/><Point x="30" y="40"/></Coords>
 <TextEquiv><Unicode>old</Unicode></TextEquiv></TextLine></TextRegion></Page></PcGts>"""
ALTO = """<alto xmlns="http://www.loc.gov/standards/alto/ns-v{version}#"><Description>{description}</Description>
 <Layout><Page WIDTH="{width}" HEIGHT="100"><PrintSpace><TextBlock>
 <TextLine ID="a" HPOS="10" VPOS="20" WIDTH="100" HEIGHT="30">{shape}{words}</TextLine></TextBlock></PrintSpace></Page>
 </Layout></alto>"""
NAMED = "<MeasurementUnit>pixel</MeasurementUnit><sourceImageInformation><fileName>1.png</fileName></sourceImageInformation>"
WORDS = '<String CONTENT="two"/><SP WIDTH="1"/><String CONTENT="wo"/><String CONTENT="rds"/><HYP CONTENT="\u2e17"/>'

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes an XML file with the page 1.png, 200 x 100 with a block of ink, beside it."""
    grey = np.full((100, 200), 230, np.uint8)
    grey[15:25, 20:100] = 10
    Image.fromarray(grey).save(tmp_path / "1.png")

    def write(content: str, name: str = "1.xml", **values: object) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content.format(**values) if values else content, encoding="utf-8")
        return path

    return write


def page(**changes: str) -> dict[str, str]:
    return {"version": "2019-07-15", "image": "1.png", "points": "10,10 110,10 110,45 10,45"} | changes


def alto(**changes: object) -> dict[str, object]:
    return {"version": 4, "description": NAMED, "width": 200, "shape": "", "words": WORDS} | changes


@pytest.mark.parametrize("version", ["2013-07-15", "2019-07-15"])
def test_page(write: Write, version: str) -> None:
    first, second = read_page(write(PAGE, **page(version=version)))
    assert first.text == "\u00e9t\u00e9 \u05e9\u05dc\u05d5\u05dd", "the lowest index, normalised, in logical order"
    assert (first.document, second.text) == ("1", "")
    assert first.polygon == ((10, 10), (110, 10), (110, 45), (10, 45))
    ink = read_line(first)
    assert ink.shape == (1, 36, 101)
    assert ink.mean().item() == pytest.approx(10 * 80 / (36 * 101))


def test_page_as_before_2013(write: Write) -> None:
    (line,) = read_page(write(OLD_PAGE))
    assert (line.text, line.polygon) == ("old", ((1, 2), (30, 2), (30, 40)))


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("10,40 60,38 110,36", ((10, 80), (60, 76), (110, 72))),
        ("10 40 110 36", ((10, 80), (110, 72))),
        ("40", None),
        ("40.5", None),
        ("", None),
        ("10,40", None),
        ("10,40 110", None),
        ("10,40 a,b", None),
        ("10,40 nan,36", None),
        ("10,40 1e300,36", None),
    ],
)
def test_base_lines(write: Write, stated: str, expected: object) -> None:
    """In pixels of the image, which here is twice as high as the file says. One that cannot be used is as none: before ALTO 4.1 it was
    a height."""
    baseline = f'<Baseline points="{stated}"/>'
    content = PAGE.replace('imageHeight="100"', 'imageHeight="50"').replace('imageWidth="200"', 'imageWidth="200"')
    content = content.replace('<Word id="w">', f'{baseline}<Word id="w">')
    Image.new("L", (200, 100), 255).save(write(content, **page()).with_name("1.png"))
    assert read_page(write(content, **page()))[0].baseline == expected
    content = ALTO.replace('ID="a"', f'ID="a" BASELINE="{stated}"').replace('HEIGHT="100"', 'HEIGHT="50"')
    assert read_page(write(content, **alto()))[0].baseline == expected


def test_base_lines_as_before_2013(write: Write) -> None:
    for points, expected in (('<Point x="1" y="30"/><Point x="30" y="31"/>', ((1, 30), (30, 31))), ("<Point/>", None)):
        content = OLD_PAGE.replace("</Coords>", f"</Coords><Baseline>{points}</Baseline>")
        assert read_page(write(content))[0].baseline == expected


def test_a_skewed_line_is_trained_on_as_it_is_read(write: Write, tmp_path: Path) -> None:
    """Straight: its ink is as high as that of the line that was rotated."""
    grey = np.full((100, 200), 230, np.uint8)
    grey[40:60, 20:180] = 10
    scan = Image.fromarray(grey).rotate(10, Image.Resampling.BICUBIC, fillcolor=230)
    sides = "14,57 180,28 187,71 21,100"
    content = PAGE.replace('<Word id="w">', '<Baseline points="23,74 181,46"/><Word id="w">')
    for name in ("1", "2", "3"):
        write(content, f"{name}.xml", **page(points=sides, image=f"{name}.png"))
        scan.save(tmp_path / f"{name}.png")
    for line in list_lines(tmp_path):
        ink = read_line(line)[0]
        assert (ink[:, 20:-20].sum(0) > 15).all()
        assert ink.shape[0] < 50


@pytest.mark.parametrize("version", [2, 3, 4])
def test_alto(write: Write, version: int) -> None:
    (line,) = read_page(write(ALTO, **alto(version=version)))
    assert line.text == "two words\u2e17"
    assert line.polygon == ((10, 20), (110, 20), (110, 50), (10, 50))


@pytest.mark.parametrize(
    ("word", "sign", "text"),
    [
        ("Fon", "\u00ad", "Fon-"),  # as ABBYY writes the hyphen that is printed
        ("Fon-", "\u00ad", "Fon-"),
        ("Fon\u2e17", "-", "Fon\u2e17"),
        ("Fon", "\u2e17", "Fon\u2e17"),
        ("Fon", "", "Fon"),
    ],
)
def test_a_hyphen_of_alto_is_the_sign_that_has_ink(write: Write, word: str, sign: str, text: str) -> None:
    (line,) = read_page(write(ALTO, **alto(words=f'<String CONTENT="{word}"/><HYP CONTENT="{sign}"/>')))
    assert line.text == text


@pytest.mark.parametrize("unit", ["mm10", "inch1200"])
def test_alto_in_a_unit_of_length_needs_the_size_of_the_page(write: Write, unit: str) -> None:
    path = write(ALTO.replace(' WIDTH="{width}"', ""), **alto(description=NAMED.replace("pixel", unit)))
    with raises("page.unreadable"):
        read_page(path)
    path = write(ALTO.replace('WIDTH="{width}" HEIGHT="100"', ""), **alto())
    assert read_page(path)[0].polygon[0] == (10, 20), "pixels"


@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_image_that_only_exif_makes_upright(write: Write, orientation: int, tmp_path: Path) -> None:
    """Sizes tell a rotation by 90 degrees: where they are those of the stored image, so are the coordinates."""
    path, exif = write(PAGE, **page()), Image.Exif()
    exif[0x0112] = orientation
    Image.open(tmp_path / "1.png").save(tmp_path / "1.png", exif=exif)
    if orientation in (2, 3, 4):
        with raises("page.exif"):
            read_page(path)
    else:
        assert read_page(path)[0].polygon[0] == (10, 10)


def test_lines_come_in_the_reading_order_of_page(write: Write) -> None:
    """Two columns that the file holds the other way round, and a footnote that the order does not name."""
    line = '<TextLine><Coords points="0,0 9,0 9,9"/><TextEquiv><Unicode>{}</Unicode></TextEquiv></TextLine>'.format
    regions = "".join(
        f'<TextRegion id="{name}">{line(name + "1")}{line(name + "2")}{inner}</TextRegion>'
        for name, inner in (
            ("note", ""),
            ("right", ""),
            ("left", f'<TextRegion id="inner">{line("inner")}</TextRegion>'),
        )
    )
    order = (
        '<ReadingOrder><OrderedGroup><RegionRefIndexed index="1" regionRef="right"/><OrderedGroupIndexed index="0">'
        '<RegionRefIndexed index="0" regionRef="left"/></OrderedGroupIndexed></OrderedGroup></ReadingOrder>'
    )
    content = '<PcGts><Page imageFilename="1.png">{}</Page></PcGts>'.format
    texts = ["left1", "left2", "inner", "right1", "right2", "note1", "note2"]
    path = write(content(order + regions))
    assert [line.text for line in read_page(path)] == texts
    path.write_text(write_text(path, [Reading(text.upper(), 1) for text in texts], "weights"), encoding="utf-8")
    assert [line.text for line in read_page(path)] == [text.upper() for text in texts]
    unordered = read_page(write(content(regions)))
    assert [line.text for line in unordered] == ["note1", "note2", "right1", "right2", "left1", "left2", "inner"]


@pytest.mark.parametrize("points", ["1,2 30,2 30,40", "1 2 30 2 30 40"])
def test_alto_polygon(write: Write, points: str) -> None:
    shape = f'<Shape><Polygon POINTS="{points}"/></Shape>'
    (line,) = read_page(write(ALTO, **alto(shape=shape, words='<String CONTENT="one"/><String CONTENT="two"/>')))
    assert line.polygon == ((1, 2), (30, 2), (30, 40))
    assert line.text == "one two", "words that nothing separates"


def test_alto_of_transkribus(write: Write) -> None:
    """It names no image, and mm10 as the unit of its pixels; a page of another size than its image is scaled."""
    transkribus = "<MeasurementUnit>mm10</MeasurementUnit>"
    (line,) = read_page(write(ALTO, name="alto/1.xml", **alto(description=transkribus)))
    assert line.polygon == ((10, 20), (110, 20), (110, 50), (10, 50))
    assert line.image.read_bytes() == (line.image.parent / "1.png").read_bytes()
    (line,) = read_page(write(ALTO, **alto(description=transkribus, width=400)))
    assert line.polygon == ((5, 20), (55, 20), (55, 50), (5, 50))


@pytest.mark.parametrize("image", ["1.png", "images/1.png", "C:\\scans\\1.png"])
def test_the_image_is_beside_the_file_or_above(write: Write, image: str) -> None:
    lines = read_page(write(PAGE, name="page/1.xml", **page(image=image)))
    assert lines[0].image.is_file()


BOMB = '<!DOCTYPE x [<!ENTITY a "{}"><!ENTITY b "{}">]><PcGts>&b;</PcGts>'.format("ha" * 50, "&a;" * 50)
EXTERNAL = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/hostname">]><PcGts>&a;</PcGts>'


@pytest.mark.parametrize(
    ("content", "key"),
    [
        (BOMB, "page.xml"),
        (EXTERNAL, "page.xml"),
        ("", "page.xml"),
        ("<PcGts><Page></PcGts>", "page.xml"),
        ("<html><body/></html>", "page.format"),
        ("<PcGts/>", "page.unreadable"),
        ("<alto/>", "page.unreadable"),
        ("<alto><Layout><Page/><Page/></Layout></alto>", "page.unreadable"),
        ("<PcGts><Page/></PcGts>", "page.unreadable"),
        (PAGE.format(**page(image="other.png")), "page.no_image"),
    ],
)
def test_bad_files_are_named(write: Write, content: str, key: str) -> None:
    with raises(key):
        read_page(write(content))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (PAGE.replace('<Coords points="{points}"/>', "").format(**page()), r"no 'Coords'"),
        (ALTO.format(**alto()).replace("HPOS", "X"), r"no 'HPOS'"),
        (ALTO.format(**alto()).replace('"10"', '"ten"'), r"could not convert string to float: 'ten'"),
        (PAGE.format(**page(points="10,10 110,10")), r"its polygon is not 3 or more points"),
        (PAGE.format(**page(points="")), r"its polygon is not 3 or more points"),
        (PAGE.format(**page(points="1,1 2,2 3,nan")), r"its polygon is not 3 or more points"),
        (PAGE.format(**page(points="1,1 " * 5_001)), r"its polygon has over 5000 points"),
        (PAGE.format(**page(points="1,1 2,2 3,1e8")), r"its polygon has .* beyond 10000000"),
        (ALTO.format(**alto()).replace('"10"', '"1e308"').replace('H="100" HE', 'H="1e308" HE'), r"its polygon is not"),
    ],
)
def test_a_line_that_cannot_be_cut_out_is_an_error_of_its_own(write: Write, content: str, message: str) -> None:
    first, *others = read_page(write(content))
    assert (first.text, first.polygon) == ("", None)
    with pytest.raises(ValueError, match=rf"^line a of .*1\.xml cannot be cut out \({message}.*: correct it$"):
        read_line(first)
    assert all(line.polygon and not line.error for line in others)


@pytest.mark.parametrize("content", [PAGE.format(**page()), ALTO.format(**alto())])
def test_a_page_whose_image_is_stored_turned(write: Write, content: str, tmp_path: Path) -> None:
    path = write(content)
    image = Image.new("L", (500, 1000))  # a page of 200 x 100 scanned in another size
    image.save(tmp_path / "1.png")
    with raises("page.rotated"):
        read_page(path)
    image.resize((300, 110)).save(tmp_path / "1.png")
    assert read_page(path)[0].polygon[0][0] == 15
    path.write_text(content.replace('"200"', '"101"'))
    image.resize((101, 100)).save(tmp_path / "1.png")
    assert read_page(path)[0].polygon[0][0] == 10, "nearly square"


def test_the_text_of_a_line_may_be_in_its_words_alone(write: Write) -> None:
    equiv = '<TextEquiv index="{}"><Unicode>{}</Unicode></TextEquiv>'.format
    word = f"<Word>{equiv(1, 'no')}{equiv(0, '{}')}</Word>"
    words = "<Word/>" + word.format("two") + word.format("words")
    content = PAGE.format(**page()).replace("<TextEquiv><Unicode/></TextEquiv>", words)
    assert read_page(write(content))[1].text == "two words"


def test_a_corrupt_page_image_is_named(write: Write) -> None:
    path = write(PAGE, **page())
    (path.parent / "1.png").write_bytes(b"no image")
    with raises("page.image"):
        read_page(path)


OUTSIDE = (
    "{root}/secret.png",
    "../../secret.png",
    "../../../{name}/secret.png",
    "sub/../../../secret.png",
    "..\\..\\secret.png",
    "link.png",
    "linked/secret.png",
    "../sibling/secret.png",
    "sibling/secret.png",
    "/dev/zero",
    "/proc/self/environ",
    "\\\\host\\share\\secret.png",
)


def test_a_name_as_part_of_an_address(write: Write, tmp_path: Path) -> None:
    (tmp_path / "1.png").rename(tmp_path / "page 1.png")
    assert read_page(write(PAGE.format(**page(image="page%201.png")))) != []


@pytest.mark.parametrize("image", OUTSIDE)
@pytest.mark.parametrize("kind", ["page", "alto"])
def test_images_elsewhere_are_not_read(write: Write, image: str, kind: str, tmp_path: Path) -> None:
    image = image.format(root=tmp_path, name=tmp_path.name)
    (tmp_path / "1.png").rename(tmp_path / "secret.png")
    (tmp_path / "export" / "sibling").mkdir(parents=True)
    (tmp_path / "export" / "sibling" / "secret.png").write_bytes((tmp_path / "secret.png").read_bytes())
    named = NAMED.replace("1.png", image)
    content = PAGE.format(**page(image=image)) if kind == "page" else ALTO.format(**alto(description=named))
    (tmp_path / "export" / "page" / "sub").mkdir(parents=True)
    path = write(content, name="export/page/1.xml")
    (path.parent / "link.png").symlink_to(tmp_path / "secret.png")
    (path.parent / "linked").symlink_to(tmp_path)
    with (
        raises("page.no_image") as error,
        sealed(path.parent, write=False),
    ):
        read_page(path)
    assert "\n" not in str(error.value)
    assert str(error.value).count(" any_image=true ") == (image != "link.png")


@pytest.mark.parametrize("image", [image for image in OUTSIDE[:7] if "\\" not in image])
def test_any_image_is_read_where_that_is_wanted(write: Write, image: str, tmp_path: Path) -> None:
    image = image.format(root=tmp_path, name=tmp_path.name)
    (tmp_path / "1.png").rename(tmp_path / "secret.png")
    (tmp_path / "export" / "page" / "sub").mkdir(parents=True)
    path = write(PAGE, name="export/page/1.xml", **page(image=image))
    (path.parent / "link.png").symlink_to(tmp_path / "secret.png")
    (path.parent / "linked").symlink_to(tmp_path)
    assert read_page(path, any_image=True)[0].image.resolve() == tmp_path / "secret.png"


def test_names_of_another_machine(write: Write) -> None:
    """Where the file was written the image lay elsewhere; here it lies beside the file, or in a folder below."""
    for image in ("/home/somebody/scans/1.png", "C:\\scans\\1.png", "file:///scans/1.png", "../../scans/1.png"):
        assert read_page(write(PAGE, **page(image=image)))[0].image.name == "1.png"
    path = write(PAGE, **page(image="scans\\1.png"))
    (path.parent / "scans").mkdir()
    (path.parent / "1.png").rename(path.parent / "scans" / "1.png")
    assert read_page(path)[0].image == path.parent / "scans" / "1.png"


def test_a_page_in_the_working_folder(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder above is that of the file, however the file is named."""
    path = write(PAGE, name="page/1.xml", **page())
    monkeypatch.chdir(path.parent)
    assert read_page("1.xml")[0].image.is_file()


@pytest.mark.parametrize("size", ["nan", "inf", "-inf", "-200", "1e400", "1e-300", "0.5", "99999999999", "abc", "0x10"])
@pytest.mark.parametrize("kind", ["page", "alto"])
def test_sizes_that_no_page_has(write: Write, size: str, kind: str) -> None:
    if kind == "page":
        path = write(PAGE.replace('imageWidth="200"', f'imageWidth="{size}"'), **page())
    else:
        path = write(ALTO, **alto(width=size))
    name = "imageWidth" if kind == "page" else "WIDTH"
    with pytest.raises(ValueError, match=rf"1\.xml cannot be read as a page \({name}='{size}' is not a size of a page"):
        read_page(path)


def test_bounds(write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    line = PAGE[PAGE.index("  <TextLine") : PAGE.index('  <TextLine id="b')]
    for content, key in (
        (PAGE.replace(line, 5_001 * line).format(**page()), "page.unreadable"),
        (
            PAGE.format(**page()).replace("second", "x").replace("WORD", "y").replace(" </Uni", "a" * 10_001 + "</Uni"),
            "page.unreadable",
        ),
        (ALTO.format(**alto(words='<String CONTENT="ab"/>' * 5_000)), "page.unreadable"),
        (ALTO.format(**alto()).replace('"100"', '"1e308"'), "page.unreadable"),
        (
            "<PcGts>" + "<a>" * 101 + "</a>" * 101 + "</PcGts>",
            "page.xml",
        ),
        ("<PcGts>" + "<a>" * 200_000, "page.xml"),
        (PAGE.replace('"200"', '"1"').format(**page(points="1,1 200,2 99999,999")), "page.too_small"),
    ):
        path = write(content)
        with raises(key), sealed(tmp_path, memory=1 << 28, write=False):
            read_page(path)
    monkeypatch.setattr(page_xml, "MAX_ELEMENTS", 10)
    with raises("page.xml"):
        read_page(write(PAGE, **page()))
    monkeypatch.setattr(page_xml, "MAX_BYTES", 100)
    with raises("file.too_large"):
        read_page(write(PAGE, **page()))
    with pytest.raises(FileNotFoundError):
        read_page(tmp_path / "no.xml")


def test_a_polygon_far_beyond_the_page_takes_no_more_than_the_page(write: Write, tmp_path: Path) -> None:
    path = write(PAGE, **page(points="-9999999,-9999999 9999999,-9999999 9999999,9999999 -9999999,9999999"))
    with sealed(tmp_path, memory=1 << 28, write=False):
        assert read_line(read_page(path)[0]).shape == (1, 100, 200)


def test_a_page_image_that_changes_is_read_anew(write: Write, tmp_path: Path) -> None:
    line = read_page(write(PAGE, **page()))[0]
    before = read_line(line)
    grey = np.full((100, 200), 230, np.uint8)
    grey[30:44, 20:60] = 10
    Image.fromarray(grey).save(tmp_path / "1.png")
    assert not torch.equal(read_line(line), before)


def test_a_folder_of_pages(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(10):
        folder = write(PAGE, name=f"{number}.xml", **page()).parent
    write("<mets/>", name="METS.xml")
    write("what macOS puts beside files", name="._1.xml")
    lines = list_lines(folder)
    assert sorted(line.document for line in lines) == [str(number) for number in range(10)]
    assert [sum(line.split == split for line in lines) for split in ("train", "val", "test")] == [8, 1, 1]
    assert "10 of 20 lines have no transcription" in caplog.text
    (val,) = list_lines(folder, ["val"])
    assert val in lines


def test_lines_without_a_polygon_are_left_out(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    line = PAGE[PAGE.index("  <TextLine") : PAGE.index('  <TextLine id="b')]
    folder = write(PAGE.replace(line, 5 * line + line.replace("{points}", "")), **page()).parent
    assert len(list_lines(folder)) == 5
    assert "2 of 7 lines have no transcription, or no usable polygon, and are left out" in caplog.text


def test_the_lines_of_one_page_are_divided(write: Write) -> None:
    line = PAGE[PAGE.index("  <TextLine") : PAGE.index('  <TextLine id="b')]
    folder = write(PAGE.replace(line, 5 * line), **page()).parent
    lines = list_lines(folder)
    assert sorted(line.split for line in lines) == ["test", "train", "train", "train", "val"]
