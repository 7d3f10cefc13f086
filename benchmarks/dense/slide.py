"""A slide through gcsa segment as a user runs it: CPU-minutes, peak memory, and the same objects as of its parts.

`python -m benchmarks.dense.slide gcsa_unet_tiny.nuclei --width 20000 --height 15000 --write benchmarks/results/slide/nuclei.json`. The slide is
a pyramid of TIFF with tiles of JPEG (YCbCr, quality 90), as scanners write them, of the mosaic of `benchmarks.dense.mosaic`. Memory is the
largest resident size of the process, and beyond the model that less the same of an image of 256 x 256 pixels. Around eight crossings of
tiles, the label image is compared with a window of that place alone. CPU-minutes, as another program may run beside it.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
import torch
from PIL import Image
from skimage.io import imread

from benchmarks.common import keep
from benchmarks.dense.mosaic import differences, mosaic
from gcsa._utils.arrays import Array
from gcsa.images.windows import ArrayImage
from gcsa.tasks import load

TILE = 256
LEVELS = 4
QUALITY = 90


def halved(picture: Array) -> Array:
    """Half as many pixels a side, each the mean of four, of (H, W, 3) in uint8."""
    rows, columns = (side // 2 * 2 for side in picture.shape[:2])
    quarters = (picture[i:rows:2, j:columns:2].astype(np.uint16) for i in (0, 1) for j in (0, 1))
    return ((sum(quarters) + np.uint16(2)) // 4).astype(np.uint8)


def packed(picture: Array) -> Iterator[bytes]:
    """The tiles of a picture, each a JPEG."""
    for top in range(0, len(picture), TILE):
        rows = picture[top : top + TILE]
        rows = np.pad(rows, ((0, TILE - len(rows)), (0, -rows.shape[1] % TILE), (0, 0)), mode="edge")
        for left in range(0, rows.shape[1], TILE):
            buffer = BytesIO()
            Image.fromarray(rows[:, left : left + TILE]).save(buffer, "jpeg", quality=QUALITY, subsampling=2)
            yield buffer.getvalue()


def write_slide(picture: Array, file: Path) -> None:
    """Writes a pyramid of `LEVELS` levels."""
    coding: dict[str, Any] = dict(compression=7, photometric="ycbcr", subsampling=(2, 2), dtype=np.uint8)
    with tifffile.TiffWriter(file, bigtiff=True) as writer:
        for level in range(LEVELS):
            tiles: dict[str, Any] = dict(shape=picture.shape, tile=(TILE, TILE), metadata=None, subfiletype=level > 0)
            writer.write(packed(picture), **tiles, **coding)
            picture = halved(picture)


def segment(weights: str, image: Path, output: Path) -> tuple[float, float]:
    """CPU-seconds and the largest resident megabytes of gcsa segment (Linux)."""
    command = [sys.executable, "-m", "gcsa", "segment", weights, str(image), "--output", str(output), "--threads", "1"]
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"gcsa segment ended with status {status}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights")
    parser.add_argument("--width", type=int, default=20_000)
    parser.add_argument("--height", type=int, default=15_000)
    parser.add_argument("--write", type=Path, required=True, help="the JSON file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        picture = mosaic(args.height, args.width)
        Image.fromarray(picture[:TILE, :TILE]).save(folder / "small.png")
        write_slide(picture, folder / "slide.tif")
        del picture
        _, of_model = segment(args.weights, folder / "small.png", folder / "found")
        seconds, whole = segment(args.weights, folder / "slide.tif", folder / "found")
        with (folder / "found/slide_objects.csv").open(newline="") as table:
            objects = sum(1 for _ in csv.reader(table)) - 1
        labels = ArrayImage(imread(next(folder.glob("found/slide_labels.*"))))  # .png, and of large images .tif
        predictor: Any = load(args.weights)
        content = {
            "weights": args.weights,
            "width": args.width,
            "height": args.height,
            "file_megabytes": (folder / "slide.tif").stat().st_size / 1e6,
            "cpu_seconds": seconds,
            "megabytes": whole,
            "megabytes_beyond_model": whole - of_model,
            "objects": objects,
            "differences": differences(predictor.fold(), folder / "slide.tif", labels),
        }
    keep(args.write, content)


if __name__ == "__main__":
    main()
