"""The features of the patches of a slide, in the HDF5 form of CLAM and TRIDENT, by runs that may be killed and go on.

CLAM (Lu et al. 2021, arXiv:2004.09666) and TRIDENT (Zhang et al. 2025, arXiv:2502.06750) read from a file of a slide `features` (N, D)
and `coords` (N, 2), x and y of the upper left corners in pixels of level 0, whose attributes say how large the patches are.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn

from gcsa._utils.arrays import Array
from gcsa.evaluation.evaluation_mode import evaluation_mode
from gcsa.images.pixels import Refused
from gcsa.images.prepare import Prepare
from gcsa.images.slides import Roi, Slide
from gcsa.images.tissue import grid, overview, shares, tissue

COARSER = 1.1
"""How much larger than wanted the pixels of a slide may be: beyond it, enlarging would make up what the slide does not show."""
MOST_SIDE = 4096
"""Pixels a side that are read for a patch, of the level that it is resampled from."""
OOD_SCORES = "ood_scores"
"""The data set of HDF5: of each patch."""
MOST_HEADER = 1_000_000
"""Bytes of the first line of a file of rows."""


@dataclass(frozen=True)
class Patches:
    """The patches of a slide that are embedded.

    Attributes:
        corners: row and column (n, 2) of their upper left corners, in pixels of level 0.
        extent: pixels of level 0 along a side.
        mpp: micrometres a pixel.
        picture: an overview (h, w, 3) of the slide, in which all else is faded.
    """

    corners: NDArray[np.int64]
    extent: int
    mpp: float
    picture: NDArray[np.uint8]

    def between(self, first: int, last: int) -> Patches:
        """Those of these numbers."""
        return replace(self, corners=self.corners[first:last])


def choose_patches(
    slide: Slide,
    size: int,
    mpp: float | None,
    slide_mpp: float | None,
    least_tissue: float,
    level: int = 0,
    roi: Roi | None = None,
) -> Patches:
    """Squares of `size` pixels of `mpp` micrometres, or without it of pixels of `level`, side by side, of which at least the share
    `least_tissue` is tissue.

    slide_mpp: of level 0, for a slide that does not say it. roi: what they cover; None for the whole slide.

    Raises:
        ValueError: `Refused`, to be put behind the name of the file: a slide of more than 8 bits, that is too coarse or too fine, without
            tissue, or does not say its scale; a level or rectangle that it does not have.
        MissingExtraError: as `tissue`.
    """
    slide.check(level, roi)
    own = slide.mpp if slide_mpp is None else slide_mpp
    dtype = slide.levels[0].window(0, 0, 1, 1).dtype
    if dtype != np.uint8:
        raise Refused(f"holds {dtype} values: save it in 8 bits", "patches.bits", dtype=dtype)
    if own is None:
        raise Refused("does not say how many micrometres a pixel has: give --slide-mpp", "patches.no_mpp")
    mpp = own * slide.downsample(level) if mpp is None else mpp
    if own > COARSER * mpp:
        raise Refused(
            f"has {own:g} micrometres a pixel, coarser than the {mpp:g} of the patches: give --mpp {own:g}, or scan it finer",
            "patches.too_coarse",
        )
    extent = round(size * mpp / own)
    if (side := extent / slide.downsample(slide.level_for(extent / size))) > MOST_SIDE:
        raise Refused(
            f"would have {side:.0f} x {side:.0f} pixels read for each patch, above {MOST_SIDE}: give a smaller --mpp",
            "patches.too_fine",
        )
    part = roi or Roi(0, 0, *slide.shape[::-1])
    corners = grid((part.height, part.width), extent) + np.array([part.y, part.x])
    picture = overview(slide)
    if least_tissue > 0:
        corners = corners[shares(tissue(picture), corners, extent, slide.shape) >= least_tissue]
        if not len(corners):
            raise Refused(
                "shows no stained tissue on bright glass: --tissue 0 takes all patches, for fluorescence too",
                "patches.no_tissue",
            )
    factors = np.array(picture.shape[:2]) / np.array(slide.shape)
    faded = np.uint8(255) - (np.uint8(255) - picture) // np.uint8(4)
    for (top, left), (bottom, right) in zip(
        (corners * factors).astype(int), np.ceil((corners + extent) * factors).astype(int), strict=True
    ):
        faded[top:bottom, left:right] = picture[top:bottom, left:right]
    return Patches(corners, extent, mpp, faded)


class RowStore:
    """Rows of float32 in a file that grows, behind a line of JSON that says what they are of.

    What is there already is kept where it is of the same `about`, without a row that is cut off: so a run that was killed goes on.
    """

    def __init__(self, file: Path, about: Mapping[str, Any]) -> None:
        self.file, self.about = file, dict(about)
        self.start = self.columns = self.count = 0
        if not file.is_file():
            return
        with file.open("rb") as opened:
            line = opened.readline(MOST_HEADER)
        try:
            header = json.loads(line)
            same, columns = header["about"] == json.loads(json.dumps(self.about)), int(header["columns"])
        except (ValueError, TypeError, KeyError):  # killed while it was written
            return
        if same and columns > 0:
            self.start, self.columns = len(line), columns
            self.count = (file.stat().st_size - self.start) // (4 * columns)

    def append(self, rows: Array) -> None:
        """Adds rows (n, D)."""
        if not self.start:
            self.columns = rows.shape[1]
            header = json.dumps({"about": self.about, "columns": self.columns}).encode() + b"\n"
            self.file.write_bytes(header)
            self.start = len(header)
        with self.file.open("r+b") as opened:
            opened.seek(self.start + 4 * self.columns * self.count)
            opened.write(np.ascontiguousarray(rows, np.float32).tobytes())
            opened.truncate()
        self.count += len(rows)

    def rows(self) -> Array:
        """All rows (N, D), as a map of the file."""
        return np.memmap(self.file, np.float32, "r", self.start, (self.count, self.columns))


def rows_file(file: Path, first: int | None = None) -> Path:
    """Where the rows are of which `file` will be made; first: those from this number on, of a process that shares the slide with others."""
    return file.with_name(f"{file.name}.part" + ("" if first is None else f".{first}"))


def parts_of(file: Path) -> list[int]:
    """The numbers of the first rows of the files that several processes have begun, in their order."""
    start = rows_file(file).name + "."
    numbers = (path.name.removeprefix(start) for path in file.parent.iterdir() if path.name.startswith(start))
    return sorted(map(int, filter(str.isdigit, numbers)))


def embed_patches(
    network: nn.Module,
    prepare: Prepare,
    slide: Slide,
    patches: Patches,
    store: RowStore,
    batch_size: int,
    progress: Callable[[int], object] = lambda count: None,
) -> None:
    """Adds what `network` gives for the patches from `store.count` on to `store`; `progress` is called with the number of each batch.

    Raises UserError where the slide cannot be read.
    """
    if store.count < len(patches.corners):  # a batch that was cut off: the last bits of a row depend on the others
        store.count -= store.count % batch_size
    with evaluation_mode(network) as where:
        while store.count < len(patches.corners):
            corners = patches.corners[store.count : store.count + batch_size].tolist()
            batch = [prepare(slide.patch(row, column, patches.extent, prepare.size)) for row, column in corners]
            store.append(network(torch.stack(batch).to(where)).float().cpu().numpy())
            progress(len(batch))


def attributes(slide: Slide, patches: Patches, size: int, name: str, folder: str) -> dict[str, Any]:
    """What TRIDENT says beside `coords`, and `patch_level` of CLAM where the patches are pixels of a level: CLAM resamples nothing, and
    would read others. The magnifications are those of the scanner, or 10 at a micrometre a pixel; their ratio is exact."""
    height, width = slide.shape
    level = slide.direct_level(patches.extent, size)
    ratio = patches.extent / size
    magnification = slide.magnification or round(10 / patches.mpp * ratio, 4)
    return {
        "patch_size": size,
        "patch_size_level0": patches.extent,
        "level0_magnification": magnification,
        "target_magnification": magnification / ratio,
        "overlap": 0,
        "name": name,
        "savetodir": folder,
        "level0_width": width,
        "level0_height": height,
    } | ({} if level is None else {"patch_level": level, "downsample": slide.downsample(level)})


def write_features(
    file: Path,
    features: Array,
    corners: NDArray[np.int64],
    of_coords: Mapping[str, Any],
    about: Mapping[str, Any],
    ood_scores: Array | None = None,
) -> None:
    """Writes the HDF5 file of a slide: `features`, `coords` with the attributes `of_coords`, `ood_scores` (N,) where there are any, and
    `about` as those of the file."""
    buffer = io.BytesIO()  # where a disk is full, HDF5's own writer ends the process
    with h5py.File(buffer, "w") as opened:
        opened.create_dataset("features", data=features, maxshape=(None, features.shape[1]))
        opened["features"].attrs.update({"name": of_coords["name"], "encoder": about["weights"]})
        opened.create_dataset("coords", data=corners[:, ::-1], maxshape=(None, 2))
        opened["coords"].attrs.update(of_coords)
        if ood_scores is not None:
            opened[OOD_SCORES] = ood_scores
        opened.attrs.update(about)
    file.write_bytes(buffer.getbuffer())


def save_picture(file: Path, patches: Patches, side: int = 1024) -> None:
    """Writes the overview as PNG, of at most `side` pixels a side."""
    image = Image.fromarray(patches.picture)
    image.thumbnail((side, side))
    image.save(file, format="PNG")
