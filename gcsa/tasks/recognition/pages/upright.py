"""How pages lie: a row for each image, and upright copies."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from PIL import Image, ImageOps

from gcsa import batch
from gcsa._utils.atomic import replacing
from gcsa._utils.errors import UserError, one_line, visible
from gcsa.images.reader import read_grey
from gcsa.tasks.recognition.pages.orientation import LEAST_PROBABILITY, Orientation, find_orientation
from gcsa.tasks.recognition.pages.page_skew import page_skew

CLOCKWISE = {90: Image.Transpose.ROTATE_270, 180: Image.Transpose.ROTATE_180, 270: Image.Transpose.ROTATE_90}
"""What brings a page that is rotated by so many degrees counter-clockwise back."""
SAVED: dict[str, dict[str, Any]] = {
    "JPEG": {"quality": 95, "subsampling": 0},
    "MPO": {"quality": 95, "subsampling": 0},
    "PNG": {},
    "TIFF": {"compression": "tiff_adobe_deflate"},
    "WEBP": {"lossless": True},
    "BMP": {},
    "PPM": {},
}
"""The formats that are written, and how. MPO is the JPEG of a camera with more pictures behind it: the first is written, as JPEG."""

PAPER_STEP = 8
"""Pixels: the colour of the paper is the median of those so far apart."""


def write_upright(file: Path, target: Path, degrees: int, skew: float = 0.0) -> None:
    """Writes the image in `file`, a page that is rotated by `degrees` counter-clockwise, upright to `target`.

    skew: degrees counter-clockwise by which the upright page is still rotated. A page with a skew is interpolated, and becomes so much
    larger that no corner is lost; what is new has the colour of the paper. A page that is as it should be is copied byte for byte.

    Raises UserError for a format that cannot be written without loss.
    """
    if degrees == 0 and skew == 0:
        with replacing(target) as part:
            shutil.copyfile(file, part)
        return
    with Image.open(file) as image:
        options = SAVED.get(image.format or "")
        if options is None:
            raise UserError(
                f"{file} is {image.format}, which --fix does not write: save it as PNG, TIFF or JPEG", "fix.format"
            )
        tile: Any = image.tile[0][3] if image.tile else None
        if image.mode in ("RGB", "RGBA", "LA") and ";16" in str(tile):
            raise UserError(
                f"{file} has 16 bits a colour, of which --fix would keep 8: save it with 8 bits, or in grey", "fix.bits"
            )
        kept = {key: image.info[key] for key in ("dpi", "icc_profile") if key in image.info}
        upright = ImageOps.exif_transpose(image)
        if degrees:
            upright = upright.transpose(CLOCKWISE[degrees])
        if skew:
            upright = level(upright, skew)
        with replacing(target) as part:
            upright.save(part, format="JPEG" if image.format == "MPO" else image.format, **options, **kept)


def level(page: Image.Image, skew: float) -> Image.Image:
    """A page without its skew, degrees counter-clockwise, so much larger that no corner is lost, on the colour of its paper. It keeps its
    mode; a palette becomes its colours."""
    if page.mode.startswith("I"):  # 16 bits of grey, which Pillow interpolates as floats only
        deep = level(Image.fromarray(np.asarray(page, np.float32)), skew)
        return Image.fromarray(np.asarray(deep).round().clip(0, 65535).astype(np.uint16))
    mode = page.mode
    if mode == "1":
        page = page.convert("L")
    elif mode == "P":
        page = page.convert("RGBA" if "transparency" in page.info else "RGB")
    pixels = np.asarray(page)[::PAPER_STEP, ::PAPER_STEP]
    paper: Any = np.median(pixels, (0, 1))
    paper = tuple(paper.astype(int).tolist()) if paper.ndim else float(paper) if page.mode == "F" else int(paper)
    straight = page.rotate(-skew, Image.Resampling.BICUBIC, expand=True, fillcolor=paper)
    return straight.point(lambda value: 255 * (value >= 128), "1") if mode == "1" else straight


class OrientWork(batch.Work[Path]):
    """How an image lies; with a folder `fix` an upright copy in it.

    deskew: the copies lose their skew too. even_doubtful: doubtful pages are made upright as well.
    """

    smaller = "reduce the image"
    columns = ("orientation", "blank", "doubtful", "skew")

    def __init__(self, fix: str | None, deskew: bool, even_doubtful: bool, settings: Mapping[str, Any]) -> None:
        self.fix, self.deskew, self.even_doubtful, self.settings = fix, deskew, even_doubtful, settings

    def outputs(self, item: Path) -> list[Path]:
        return [] if self.fix is None else [Path(self.fix) / item.name]

    def one(self, item: Path, pace: batch.Pace) -> batch.Result:
        grey = read_grey(item)
        found = find_orientation(grey)
        skew = None if found.blank else round(page_skew(np.rot90(grey, -found.degrees // 90)), 1) + 0.0
        if self.fix is not None:
            self._write(item, Path(self.fix) / item.name, found, skew)
        shown: dict[str, Any] = {"orientation": None, "confidence": None}
        if not found.blank:
            shown = {"orientation": found.degrees, "confidence": round(max(found.probabilities), 6)}
        return batch.Result({**shown, "blank": found.blank, "doubtful": found.doubtful, "skew": skew})

    def _write(self, item: Path, target: Path, found: Orientation, skew: float | None) -> None:
        left = found.blank or (found.doubtful and not self.even_doubtful)
        try:
            write_upright(item, target, 0 if left else found.degrees, 0 if left or not self.deskew else skew or 0)
        except (OSError, ValueError) as error:
            if isinstance(error, UserError):
                raise
            raise UserError(f"{item} was not written upright: {one_line(error)}", "fix.failed") from error


def rows_of(run: batch.Run[Path]) -> list[dict[str, Any]]:
    """A row of the table for each image that could be read."""
    found = [(file, result.values) for file, result in run.results() if result.finished]
    return [
        {
            "file": str(file),
            "orientation": v["orientation"],
            "probability": v["confidence"],
            "blank": v["blank"],
            "doubtful": v["doubtful"],
            "skew": v["skew"],
        }
        for file, v in found
    ]


def warn_doubtful(rows: Sequence[dict[str, Any]], left: bool) -> bool:
    """Names on stderr the pages that somebody has to look at, a line for each; left: they were not rotated. Returns whether there are any."""
    doubtful = [row for row in rows if row["doubtful"]]
    for row in doubtful:
        print(
            f"{visible(row['file'])}: look at it: {row['orientation']} degrees with a probability of only {row['probability']:.2f}"
            + (", left as it is" if left else ""),
            file=sys.stderr,
        )
    if doubtful:
        print(f"{len(doubtful)} of {len(rows)} are doubtful: below {LEAST_PROBABILITY:g}", file=sys.stderr)
    return bool(doubtful)


def write_rows(stream: TextIO, rows: Sequence[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        json.dump(rows, stream, indent=2, ensure_ascii=False)
        stream.write("\n")
        return
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["file", "orientation", "probability", "blank", "doubtful", "skew"])
    for row in rows:
        blank, doubtful = ("yes" if row[name] else "no" for name in ("blank", "doubtful"))
        shown = [row["orientation"], f"{row['probability']:.6f}"] if not row["blank"] else ["", ""]
        writer.writerow([row["file"], *shown, blank, doubtful, "" if row["blank"] else f"{row['skew']:.1f}"])
