"""How pages lie: a row for each image, and upright copies."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from PIL import Image, ImageOps

from gcsa import batch
from gcsa._utils.atomic import replacing
from gcsa._utils.errors import UserError, one_line
from gcsa.images.reader import read_grey
from gcsa.tasks.recognition.pages.orientation import Orientation, find_orientation

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


def write_upright(file: Path, target: Path, degrees: int) -> None:
    """Writes the image in `file`, a page that is rotated by `degrees` counter-clockwise, upright to `target`.

    A page that is upright is copied byte for byte. Raises UserError for a format that cannot be written without loss.
    """
    if degrees == 0:
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
        upright = ImageOps.exif_transpose(image).transpose(CLOCKWISE[degrees])
        with replacing(target) as part:
            upright.save(part, format="JPEG" if image.format == "MPO" else image.format, **options, **kept)


class OrientWork(batch.Work[Path]):
    """How an image lies; with a folder `fix` an upright copy in it."""

    smaller = "reduce the image"
    columns = ("orientation", "blank")

    def __init__(self, fix: str | None, settings: Mapping[str, Any]) -> None:
        self.fix, self.settings = fix, settings

    def outputs(self, item: Path) -> list[Path]:
        return [] if self.fix is None else [Path(self.fix) / item.name]

    def one(self, item: Path, pace: batch.Pace) -> batch.Result:
        found = _orient(item, self.fix)
        shown: dict[str, Any] = {"orientation": None, "confidence": None}
        if not found.blank:
            shown = {"orientation": found.degrees, "confidence": round(max(found.probabilities), 6)}
        return batch.Result({**shown, "blank": found.blank})


def rows_of(run: batch.Run[Path]) -> list[dict[str, Any]]:
    """A row of the table for each image that could be read."""
    found = [(file, result.values) for file, result in run.results() if result.finished]
    return [
        {"file": str(file), "orientation": v["orientation"], "probability": v["confidence"], "blank": v["blank"]}
        for file, v in found
    ]


def write_rows(stream: TextIO, rows: Sequence[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        json.dump(rows, stream, indent=2, ensure_ascii=False)
        stream.write("\n")
        return
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["file", "orientation", "probability", "blank"])
    for row in rows:
        shown = ["", ""] if row["blank"] else [row["orientation"], f"{row['probability']:.6f}"]
        writer.writerow([row["file"], *shown, "yes" if row["blank"] else "no"])


def _orient(file: Path, fix: str | None) -> Orientation:
    found = find_orientation(read_grey(file))
    if fix is not None:
        try:
            write_upright(file, Path(fix) / file.name, 0 if found.blank else found.degrees)
        except (OSError, ValueError) as error:
            if isinstance(error, UserError):
                raise
            raise UserError(f"{file} was not written upright: {one_line(error)}", "fix.failed") from error
    return found
