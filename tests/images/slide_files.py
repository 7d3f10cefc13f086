"""Small slides: pyramids of TIFF with tiles of JPEG, as scanners write them."""

from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from PIL import Image

from gcsa._utils.arrays import Array

APERIO = "Aperio Image Library v11.2.1 \r\n{width}x{height} |AppMag = 20|MPP = {mpp}"
TILE = 64


def tissue_picture(height: int, width: int) -> Array:
    """Noise in pink (H, W, 3) on the left, without the upper quarter, and light grey glass elsewhere."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 80, (height // 8 + 1, width // 8 + 1, 3), np.uint8)
    picture = np.array(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))
    picture += np.array([150, 40, 130], np.uint8)
    glass = np.ones((height, width), bool)
    glass[height // 4 :, : width // 2] = False
    picture[glass] = 240
    return picture


def packed_tiles(picture: Array, kind: str, **options: Any) -> Iterator[bytes]:
    """The tiles of a picture, each compressed as a file of its own."""
    whole = np.pad(picture, [(0, -side % TILE) for side in picture.shape[:2]] + [(0, 0)], mode="edge")
    for top in range(0, len(whole), TILE):
        for left in range(0, whole.shape[1], TILE):
            buffer = BytesIO()
            Image.fromarray(whole[top : top + TILE, left : left + TILE]).save(buffer, kind, **options)
            yield buffer.getvalue()


def write_slide(
    path: Path, levels: Sequence[Array], mpp: float = 0.5, *, aperio: bool = False, kind: str = "jpeg", **tags: Any
) -> None:
    """A pyramid of `levels`, of Aperio or a plain one; with a label, which is no level, in the former."""
    packing: dict[str, Any] = {
        "jpeg": dict(kind="JPEG", quality=95, subsampling=2),
        "jpeg2000": dict(kind="JPEG2000", no_jp2=True),
        "webp": dict(kind="WEBP", lossless=True),
    }[kind]
    coding: dict[str, Any] = {
        "jpeg": dict(compression=7, photometric="ycbcr", subsampling=(2, 2)),
        "jpeg2000": dict(compression=34712, photometric="rgb"),
        "webp": dict(compression=50001, photometric="rgb"),
    }[kind]
    with tifffile.TiffWriter(path, bigtiff=not aperio) as file:
        for i, level in enumerate(levels):
            height, width = level.shape[:2]
            scale = 10_000 / mpp * width / levels[0].shape[1]
            shape = dict(shape=level.shape, dtype=np.uint8, tile=(TILE, TILE), metadata=None)
            about: dict[str, Any] = dict(subfiletype=i > 0, resolution=(scale, scale), resolutionunit="CENTIMETER")
            if aperio:
                about = dict(subfiletype=0, description=APERIO.format(height=height, width=width, mpp=mpp))
            file.write(packed_tiles(level, **packing), **shape, **coding, **{**about, **tags})
            if aperio and not i:  # behind the first level stands a thumbnail
                file.write(level[::8, ::8], photometric="rgb", rowsperstrip=8, metadata=None, description="Aperio")
        if aperio:
            label = np.zeros((40, 40, 3), np.uint8)
            file.write(
                label,
                photometric="rgb",
                rowsperstrip=40,
                subfiletype=1,
                metadata=None,
                description="Aperio\nlabel 40x40",
            )


def halved(picture: Array, times: int) -> list[Array]:
    """The picture, and itself with half as many pixels a side, and again, each the mean of four."""
    levels = [picture]
    for _ in range(times):
        last = levels[-1][: len(levels[-1]) // 2 * 2, : levels[-1].shape[1] // 2 * 2].astype(np.float32)
        quarters = last.reshape(len(last) // 2, 2, -1, 2, 3).mean((1, 3))
        levels.append(quarters.round().astype(np.uint8))
    return levels
