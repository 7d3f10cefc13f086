"""A plug-in that makes gcsa the reader of OCRmyPDF (github.com/ocrmypdf/OCRmyPDF), and the judge of how its pages lie:

    ocrmypdf --plugin gcsa.integrations.ocrmypdf --rotate-pages scan.pdf searchable.pdf

OCRmyPDF keeps the pages, and lays the text behind them, where it stands.
"""

from __future__ import annotations

import math
import os
import shutil
from argparse import ArgumentParser
from functools import cache
from pathlib import Path
from typing import Any

import torch
from ocrmypdf import OcrEngine, OrientationConfidence, hookimpl
from ocrmypdf.exceptions import BadArgsError, InputFileError
from PIL import Image

from gcsa import __version__
from gcsa._utils.errors import UserError, visible
from gcsa.images.reader import read_grey
from gcsa.tasks import load
from gcsa.tasks.recognition.pages.detector import check_detector
from gcsa.tasks.recognition.pages.inputs import LineInput, Source, Transcript
from gcsa.tasks.recognition.pages.layout import PageFinder
from gcsa.tasks.recognition.pages.orientation import find_orientation
from gcsa.tasks.recognition.pages.output import content_of
from gcsa.tasks.recognition.pages.page_skew import page_skew
from gcsa.tasks.recognition.pages.pdf import ocr_element, scan_dpi
from gcsa.tasks.recognition.pages.placed import PlacedPage, placed_page
from gcsa.tasks.recognition.predict import RecognitionPredictor

NAME = "gcsa"
WEIGHTS = "gcsa_ocr_tiny.print"
TESSERACT = "ocrmypdf.builtin_plugins.tesseract_ocr"
MOST_DECIBELS = 100.0
"""Of `confidence`, where a probability is rounded to 1."""


@hookimpl
def initialize(plugin_manager: Any) -> None:
    """OCRmyPDF does not start without Tesseract while its own plug-in is there."""
    if shutil.which("tesseract") is None:
        plugin_manager.set_blocked(TESSERACT)


@hookimpl
def register_options() -> dict[str, Any]:
    """OCRmyPDF looks at the options of Tesseract in any case."""
    from ocrmypdf.builtin_plugins.tesseract_ocr import TesseractOptions

    return {"tesseract": TesseractOptions} if shutil.which("tesseract") is None else {}


@hookimpl
def add_options(parser: ArgumentParser) -> None:
    for action in parser._actions:
        if action.dest == "ocr_engine" and action.choices is not None:
            action.choices = [*action.choices, NAME]
    group = parser.add_argument_group("gcsa", "Reading by gcsa")
    group.add_argument(
        "--gcsa-weights",
        default=WEIGHTS,
        metavar="WEIGHTS",
        help="name of published weights, a folder of weights, or a .ckpt of train.py (default %(default)s)",
    )
    group.add_argument("--gcsa-adapter", metavar="FOLDER", help="of gcsa adapt")


@hookimpl
def check_options(options: Any) -> None:
    """Raises BadArgsError where rapidocr is missing, the weights cannot be read, or a renderer asks for a PDF of ours."""
    if options.ocr_engine not in ("auto", NAME):
        return
    if options.pdf_renderer == "sandwich":
        raise BadArgsError("--pdf-renderer sandwich is for Tesseract: leave it out, or choose fpdf2")
    try:
        check_detector()
        _predictor(*_weights(options))
    except (OSError, ValueError) as error:
        raise BadArgsError(str(error)) from error


@hookimpl(tryfirst=True)
def get_ocr_engine(options: Any) -> OcrEngine | None:
    return GCSAEngine() if options is None or options.ocr_engine in ("auto", NAME) else None


class GCSAEngine(OcrEngine):
    """Reads the image of a page; see `ocrmypdf.pluginspec.OcrEngine`."""

    @staticmethod
    def version() -> str:
        return __version__

    @staticmethod
    def creator_tag(options: Any) -> str:
        return f"gcsa {__version__} with {visible(' and '.join(filter(None, _weights(options))))}"

    def __str__(self) -> str:
        return f"gcsa {__version__}"

    @staticmethod
    def languages(options: Any) -> set[str]:
        """None, so that any is taken: the weights say which scripts are read."""
        return set()

    @staticmethod
    def get_orientation(input_file: Path, options: Any) -> OrientationConfidence:
        """By how many degrees counter-clockwise a page is to be rotated until it is upright, and how sure that is, in decibels: see `confidence`."""
        found = find_orientation(read_grey(input_file))
        if found.blank or found.doubtful:
            return OrientationConfidence(0, 0.0)
        return OrientationConfidence(-found.degrees % 360, confidence(max(found.probabilities)))

    @staticmethod
    def get_deskew(input_file: Path, options: Any) -> float:
        """By how many degrees counter-clockwise a page is to be rotated until its lines are level."""
        return -page_skew(read_grey(input_file))

    @staticmethod
    def supports_generate_ocr() -> bool:
        return True

    @staticmethod
    def generate_ocr(input_file: Path, options: Any, page_number: int = 0) -> tuple[Any, str]:
        """The page as OCRmyPDF's renderer takes it, and its text. Raises InputFileError where it cannot be read."""
        _share_cores(options)
        predictor = _predictor(*_weights(options))
        try:
            page, transcripts = read_page(input_file, predictor)
        except UserError as error:
            raise InputFileError(str(error)) from error
        with Image.open(input_file) as image:
            dpi = scan_dpi(image.info.get("dpi", ()))
        return ocr_element(page, dpi, page_number), content_of(transcripts, "text")

    @staticmethod
    def generate_hocr(input_file: Path, output_hocr: Path, output_text: Path, options: Any) -> None:
        raise NotImplementedError("gcsa writes hOCR by gcsa transcribe --format hocr")

    @staticmethod
    def generate_pdf(input_file: Path, output_pdf: Path, output_text: Path, options: Any) -> None:
        # `check_options` refuses the renderer that asks for it.
        raise NotImplementedError("gcsa draws no PDF of its own")


def read_page(file: Path, predictor: RecognitionPredictor) -> tuple[PlacedPage, list[Transcript]]:
    """The lines on the image of a page, in any orientation. Raises ValueError as `PageFinder`."""
    source = Source(file)
    lines = [LineInput(source, line, number) for number, line in enumerate(PageFinder()(source), 1)]
    (transcripts,) = predictor.transcribe([lines])
    return placed_page(source, transcripts), transcripts


def confidence(probability: float) -> float:
    """Odds in decibels, at most `MOST_DECIBELS`: OCRmyPDF's `--rotate-pages-threshold` of 14 is a probability of 0.962."""
    odds = probability / max(1 - probability, 1e-12)
    return min(MOST_DECIBELS, 10 * math.log10(max(odds, 1e-12)))


def _weights(options: Any) -> tuple[str, str | None]:
    return getattr(options, "gcsa_weights", WEIGHTS), getattr(options, "gcsa_adapter", None)


@cache
def _predictor(weights: str, adapter: str | None) -> RecognitionPredictor:
    predictor: Any = load(weights, adapter, "recognition").fold()
    return predictor


def _share_cores(options: Any) -> None:
    """OCRmyPDF reads so many pages at a time as there are jobs."""
    cores = os.cpu_count() or 1
    torch.set_num_threads(max(1, cores // (options.jobs or cores)))
