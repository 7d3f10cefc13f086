"""OCRmyPDF with the plug-in and random weights: text, places and rotation of pages."""

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest

pytest.importorskip("ocrmypdf")
pytest.importorskip("pypdfium2")
import img2pdf
import ocrmypdf
import pypdfium2 as pdfium
from ocrmypdf.exceptions import BadArgsError
from PIL import Image

from gcsa.integrations import ocrmypdf as plugin
from gcsa.tasks.recognition.data.typeset import set_lines
from gcsa.tasks.recognition.pages.orientation import Orientation
from tests.tasks.recognition.small import recognizer

FONT = Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSerif.ttf"
TEXTS = [f"{word} ces faits paroissent incontestables" for word in ("cerveau", "Tous", "qui", "si", "nous", "peine")]
MARGIN, WIDTH = 40, 700
PLUGIN = "gcsa.integrations.ocrmypdf"


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recognizer().save_pretrained(tmp_path_factory.mktemp("model") / "weights")


@pytest.fixture(scope="module")
def page() -> Image.Image:
    sheet = np.full((600, 800), 230, np.uint8)
    for i, (_, image) in enumerate(set_lines(TEXTS, [FONT], seed=1)):
        small = np.asarray(image.resize((image.width // 2, image.height // 2)))[:, :WIDTH]
        top = 40 + 90 * i
        sheet[top : top + small.shape[0], MARGIN : MARGIN + small.shape[1]] = np.minimum(small, 230)
    return Image.fromarray(sheet)


def options(**given: Any) -> Any:
    return ocrmypdf.OcrOptions(input_file="in.pdf", output_file="out.pdf", jobs=1, **{"_extra_attrs": given})


@pytest.mark.filterwarnings("default")
def test_a_file_by_the_command(page: Image.Image, weights: Path, tmp_path: Path) -> None:
    """An upright page, and one that lies on its side, which `--rotate-pages` makes upright: both have one text."""
    for number, degrees in enumerate((0, 90)):
        page.rotate(degrees, expand=True).save(tmp_path / f"{number}.png", dpi=(200, 200))
    (tmp_path / "in.pdf").write_bytes(img2pdf.convert([str(tmp_path / f"{n}.png") for n in (0, 1)]))
    ocrmypdf.ocr(
        tmp_path / "in.pdf",
        tmp_path / "out.pdf",
        plugins=[PLUGIN],
        gcsa_weights=str(weights),
        rotate_pages=True,
        output_type="pdf",
        optimize=0,
        jobs=1,
        rasterizer="pypdfium",
        progress_bar=False,
        sidecar=tmp_path / "text.txt",
    )
    document = pdfium.PdfDocument(tmp_path / "out.pdf")
    assert [round(side / 72 * 200) for side in document[1].get_size()] == list(page.size), "upright"
    sidecar = (tmp_path / "text.txt").read_text().split("\f")
    for sheet, expected in zip(document, sidecar, strict=False):
        lines = [line.strip() for line in sheet.get_textpage().get_text_range().splitlines() if line.strip()]
        assert lines == [line for line in expected.splitlines() if line]
    assert len(sidecar[0].splitlines()) == len(TEXTS)
    assert sidecar[0].split() == sidecar[1].split()


def test_the_tree_of_a_page(page: Image.Image, weights: Path, tmp_path: Path) -> None:
    page.save(tmp_path / "1.png", dpi=(200, 200))
    tree, text = plugin.GCSAEngine.generate_ocr(tmp_path / "1.png", options(gcsa_weights=str(weights)), 3)
    assert (tree.page_number, round(tree.dpi), tree.bbox.right, tree.bbox.bottom) == (3, 200, *page.size)
    assert [" ".join(word.text for word in line.words) for line in tree.lines] == text.splitlines()
    assert len(tree.lines) == len(TEXTS)
    for i, line in enumerate(tree.lines):
        for word in line.words:
            assert MARGIN - 20 <= word.bbox.left <= word.bbox.right <= MARGIN + WIDTH
            assert 30 + 90 * i <= word.bbox.top <= word.bbox.bottom <= 110 + 90 * i


@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
def test_orientation_is_what_brings_the_page_upright(degrees: int, page: Image.Image, tmp_path: Path) -> None:
    page.rotate(degrees, expand=True).save(tmp_path / "1.png")
    found = plugin.GCSAEngine.get_orientation(tmp_path / "1.png", None)
    assert found.angle == -degrees % 360
    assert found.confidence > 14, "the threshold of OCRmyPDF"
    Image.new("L", page.size, 230).save(tmp_path / "1.png")
    assert tuple(plugin.GCSAEngine.get_orientation(tmp_path / "1.png", None)) == (0, 0.0)


def test_deskew_is_what_makes_lines_level(page: Image.Image, tmp_path: Path) -> None:
    page.rotate(5.7, Image.Resampling.BICUBIC, expand=True, fillcolor=230).save(tmp_path / "1.png")
    assert plugin.GCSAEngine.get_deskew(tmp_path / "1.png", options()) == pytest.approx(-5.7, abs=0.15)


def test_a_doubtful_page_is_not_rotated(monkeypatch: pytest.MonkeyPatch, page: Image.Image, tmp_path: Path) -> None:
    page.save(tmp_path / "1.png")
    found = Orientation(180, (0.05, 0.03, 0.89, 0.03), False)
    monkeypatch.setattr(plugin, "find_orientation", lambda grey: found)
    assert tuple(plugin.GCSAEngine.get_orientation(tmp_path / "1.png", None)) == (0, 0.0)


def test_confidence_is_in_decibels() -> None:
    found = [plugin.confidence(p) for p in (0.0, 0.5, 0.962, 1.0)]
    assert found == pytest.approx([-120, 0, 14.03, 100], abs=0.01)


def test_other_engines_and_wrong_weights(monkeypatch: pytest.MonkeyPatch, weights: Path) -> None:
    chosen = options()
    assert isinstance(plugin.get_ocr_engine(chosen), plugin.GCSAEngine)
    chosen.ocr_engine = "none"
    assert plugin.get_ocr_engine(chosen) is None
    with pytest.raises(BadArgsError, match="no_such_weights"):
        plugin.check_options(options(gcsa_weights="no_such_weights"))
    sandwich = options(gcsa_weights=str(weights)).model_copy(update={"pdf_renderer": "sandwich"})
    with pytest.raises(BadArgsError, match="--pdf-renderer sandwich is for Tesseract"):
        plugin.check_options(sandwich)
    monkeypatch.setattr("gcsa.tasks.recognition.pages.detector.find_spec", lambda name: None)
    with pytest.raises(BadArgsError, match="needs rapidocr"):
        plugin.check_options(options(gcsa_weights=str(weights)))
