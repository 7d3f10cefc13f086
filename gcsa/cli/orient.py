"""Tell how pages lie, and make them upright: `gcsa orient scans/ --output orientations.csv --fix upright/`.

The table has one row for each image: `file`, `orientation`, `probability` and `blank`. The orientation is the angle in degrees,
counter-clockwise, by which the page is rotated; of a blank page there is none. A name in .json gives a list of objects instead.

Exit codes: 0, all images; 1, some images could not be read or written, which are listed on stderr, and the others are in the table;
2, wrong arguments, before anything is read; 130, interrupted, with no table.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from PIL import Image, ImageOps
from rich.console import Console
from rich.progress import track

from gcsa._utils.atomic import check_writable, replacing
from gcsa._utils.errors import UserError, one_line
from gcsa.cli.arguments import check_stems, count, find_images
from gcsa.cli.errors import Parser, tell_failed
from gcsa.cli.output import SCREEN, written
from gcsa.cli.running import running
from gcsa.images.reader import count_pages, read_levels
from gcsa.tasks.recognition.pages.orientation import Orientation, find_orientation

TABLES = (".csv", ".json")
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


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="gcsa orient",
        description="Tells by how many degrees pages are rotated: a table with a row for each.",
        epilog="Exit code 1 if an image could not be read or written: it is listed on stderr, and the others are in the table.",
    )
    parser.add_argument(
        "inputs", nargs="+", metavar="IMAGES", help="images, and folders of them, searched with all folders inside"
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        default=SCREEN,
        help="ends in .csv or .json; written whole or not at all (default: a table on the screen)",
    )
    parser.add_argument(
        "--fix",
        metavar="FOLDER",
        help="for upright copies of all images; JPEG is encoded anew where a page was rotated, nothing else loses anything",
    )
    parser.add_argument("--threads", type=count(1000), help="of the CPU (default: one a core)")
    return parser.parse_intermixed_args(argv)


def _check(args: argparse.Namespace, images: Sequence[Path]) -> None:
    if args.output != SCREEN:
        if not args.output.lower().endswith(TABLES):
            raise UserError(f"--output {args.output} must end in {' or '.join(TABLES)}")
        check_writable(args.output)
    if args.fix is not None:
        folder = Path(args.fix)
        if folder.exists() and not folder.is_dir():
            raise UserError(f"--fix {args.fix} is a file: name a folder for the upright copies")
        inside = [image for image in images if image.resolve().parent == folder.resolve()]
        if inside:
            raise UserError(f"--fix {args.fix} holds {inside[0]}, which would be overwritten: name another folder")
        check_stems(((image.name, image) for image in images), "fix")


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
            raise UserError(f"{file} is {image.format}, which --fix does not write: save it as PNG, TIFF or JPEG")
        tile: Any = image.tile[0][3] if image.tile else None
        if image.mode in ("RGB", "RGBA", "LA") and ";16" in str(tile):
            raise UserError(
                f"{file} has 16 bits a colour, of which --fix would keep 8: save it with 8 bits, or in grey"
            )
        kept = {key: image.info[key] for key in ("dpi", "icc_profile") if key in image.info}
        upright = ImageOps.exif_transpose(image).transpose(CLOCKWISE[degrees])
        with replacing(target) as part:
            upright.save(part, format="JPEG" if image.format == "MPO" else image.format, **options, **kept)


def _row(file: Path, found: Orientation) -> dict[str, Any]:
    shown: dict[str, Any] = {"orientation": None, "probability": None}
    if not found.blank:
        shown = {"orientation": found.degrees, "probability": round(max(found.probabilities), 6)}
    return {"file": str(file), **shown, "blank": found.blank}


def _write(stream: TextIO, rows: Sequence[dict[str, Any]], as_json: bool) -> None:
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
    if count_pages(file) > 1:
        raise UserError(f"{file} holds several pages: save them one a file")
    found = find_orientation(read_levels(file))
    if fix is not None:
        try:
            write_upright(file, Path(fix) / file.name, 0 if found.blank else found.degrees)
        except (OSError, ValueError) as error:
            if isinstance(error, UserError):
                raise
            raise UserError(f"{file} was not written upright: {one_line(error)}") from error
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code. Raises SystemExit: 2 for wrong arguments, 1 for an unexpected error."""
    args = _arguments(argv)
    with running(args.threads):
        images = find_images(args.inputs, recursive=True)
        _check(args, images)
        if args.fix is not None:
            Path(args.fix).mkdir(parents=True, exist_ok=True)
        rows, failed = [], []
        console = Console(stderr=True)
        for file in track(images, "pages", console=console, disable=not console.is_terminal):
            try:
                rows.append(_row(file, _orient(file, args.fix)))
            except ValueError as error:
                failed.append(str(error))
            except MemoryError:
                failed.append(f"{file}: not enough memory: reduce the image")
        if rows:
            with written(args.output) as stream:
                _write(stream, rows, args.output.lower().endswith(".json"))
            if args.output != SCREEN:
                print(f"{args.output}: {len(rows)} images")
        tell_failed(failed, len(images), "made upright" if args.fix is not None else "read")
    return 1 if failed else 0
