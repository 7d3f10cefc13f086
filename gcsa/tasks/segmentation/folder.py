"""Many images to the files of their objects."""

from __future__ import annotations

import csv
import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from gcsa import batch
from gcsa._utils.atomic import replacing
from gcsa._utils.errors import UserError
from gcsa.images.choices import MAX
from gcsa.images.pixels import naming
from gcsa.images.planes import Plane
from gcsa.images.reader import open_image
from gcsa.images.slides import Roi, Slide, open_slide
from gcsa.tasks.segmentation.choices import ALL, AUTO, ENDINGS, KINDS
from gcsa.tasks.segmentation.predict import Segmentation, SegmentationPredictor
from gcsa.tasks.segmentation.writers import check_properties, write

IMAGES = "images.csv"
HEADER = ["image", "objects", "ood_score"]


class Job(NamedTuple):
    """An image to segment: its file, what the names of its results begin with, and which picture of a stack it is."""

    path: Path
    stem: str
    plane: Plane

    def __str__(self) -> str:
        return str(self.path) if self.stem == self.path.stem else f"{self.path}, slice {self.plane.z}"


@dataclass(frozen=True)
class Wanted:
    """What is read of each image, and what is written.

    Attributes:
        kinds: of files, some of `KINDS`.
        scale, stain, tile: of `SegmentationPredictor.predict`.
        mpp: micrometres a pixel that the network sees, instead of `scale`.
        level, roi: the part of a picture; all results are of level 0.
        min_area: pixels of the smallest object that is kept.
        properties: more columns of the table.
    """

    kinds: Sequence[str] = KINDS
    scale: float | Literal["auto"] = 1.0
    mpp: float | None = None
    stain: str | None = AUTO
    tile: int | None = None
    level: int = 0
    roi: Roi | None = None
    min_area: int | None = None
    properties: Sequence[str] = ()


def list_jobs(
    images: Sequence[Path], channel: int | str | None = None, z: Any = None, time: int | None = None
) -> list[Job]:
    """What is to be segmented: the images, or with z=`ALL` every slice of each."""
    plane = Plane(channel, MAX if z == ALL else z, time)
    jobs = []
    for path in images:
        slices = 1
        if z == ALL:
            # What cannot be read is told when the image is read.
            with suppress(ValueError, OSError), open_image(path, plane=plane) as image:
                slices = image.slice_count
        if slices == 1:
            jobs.append(Job(path, path.stem, plane))
            continue
        digits = len(str(slices))
        jobs += [
            Job(path, f"{path.stem}_z{number:0{digits}}", replace(plane, z=number)) for number in range(1, slices + 1)
        ]
    return jobs


def without_own(jobs: Sequence[Job], named: Sequence[str]) -> list[Job]:
    """The jobs without the labels and overlays of others, which an earlier run wrote beside them, unless they are `named`."""
    written = {job.path.with_name(job.stem + ending) for job in jobs for kind in ENDINGS for ending in ENDINGS[kind]}
    written -= {Path(name) for name in named}
    kept = [job for job in jobs if job.path not in written]
    if len(kept) < len(jobs):
        ignored = f"{len(jobs) - len(kept)} of {len(jobs)} images are left out"
        print(
            f"{ignored}: they are called like labels or overlays of others; name a file to segment it", file=sys.stderr
        )
    return kept


class SegmentWork(batch.Work[Job]):
    """Segments an image, and writes its files into `folder`."""

    def __init__(
        self, predictor: SegmentationPredictor, folder: Path, wanted: Wanted, settings: Mapping[str, Any]
    ) -> None:
        logging.getLogger("tifffile").setLevel(
            logging.CRITICAL
        )  # what it says of a damaged file is one of the sentences
        self.predictor, self.folder, self.wanted, self.settings = predictor, folder, wanted, settings
        self.columns = ("found", *(["ood_score"] if predictor.ood_scorer is not None else []))
        self.smaller = (
            "cut the image" if predictor.network.margin is None else "choose a smaller --tile, or cut the image"
        )

    def file(self, item: Job) -> Path:
        return item.path

    def outputs(self, item: Job) -> list[Path]:
        return [self.folder / (item.stem + ending) for kind in self.wanted.kinds for ending in ENDINGS[kind]]

    def one(self, item: Job, pace: batch.Pace) -> batch.Result:
        wanted, fraction = self.wanted, 0.0

        def advance(more: float) -> None:
            nonlocal fraction
            fraction += more
            pace.ahead(fraction)

        with open_slide(item.path, self.predictor.network.in_chans, plane=item.plane) as slide:
            check_properties(wanted.properties, slide.pixel_size)
            with naming(item.path):
                seen, image, origin = slide.part(wanted.level, wanted.roi)
            scale = wanted.scale if wanted.mpp is None else _scale_to(wanted.mpp, slide, wanted.level, item.path)
            whole = None if wanted.roi is None else slide.overview(wanted.level)
            options: dict[str, Any] = dict(
                scale=scale, stain=wanted.stain, tile=wanted.tile, shape=image.shape, whole=whole
            )
            result = replace(self.predictor.predict(seen, **options, progress=advance), origin=origin)
            if wanted.min_area is not None:
                result = result.without_small(wanted.min_area)
            measured: dict[str, Any] = dict(properties=wanted.properties, pixel_size=slide.pixel_size)
            limits = self.predictor.limits(seen if whole is None else whole)
            write(result, image, limits, self.folder / item.stem, wanted.kinds, **measured)
        objects = None if result.objects is None else len(result.objects)
        ood_score = None if result.ood_score is None else float(result.ood_score)
        return batch.Result({"found": _summary(result), "ood_score": ood_score, "objects": objects})


def tell(job: Job, result: batch.Result) -> None:
    """Says on stdout what was found in an image."""
    if result.finished:
        batch.say(f"{job}: {result.values['found']}")


def write_images(folder: Path, found: Iterable[tuple[Job, Mapping[str, Any]]]) -> None:
    """Writes the table of the images in a folder of results, also of those without objects: name of the image, objects and OOD score. Images
    of earlier runs stay in it."""
    file = folder / IMAGES
    rows: dict[str, list[Any]] = {}
    with suppress(OSError), file.open(encoding="utf-8", newline="") as stream:
        rows = {row[0]: row for row in csv.reader(stream) if row}
    for job, values in found:
        name = job.stem.encode(errors="backslashreplace").decode()  # names of files need not be UTF-8
        rows[name] = [name, values["objects"], values["ood_score"]]
    rows.pop(HEADER[0], None)
    with replacing(file) as part, part.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([HEADER, *rows.values()])


def _scale_to(mpp: float, slide: Slide, level: int, path: Path) -> float:
    """The factor that brings a level of a slide to `mpp` micrometres a pixel. Raises UserError for one that does not say its own."""
    if slide.mpp is None:
        raise UserError(
            f"{path} does not say how many micrometres a pixel has: give --scale instead of --mpp", "mpp.missing"
        )
    return slide.mpp * slide.downsample(level) / mpp


def _summary(result: Segmentation) -> str:
    if result.objects is not None:
        return f"{len(result.objects)} objects" + (f" in {result.stain}" if result.stain else "")
    return f"classes {', '.join(map(str, np.unique(result.labels)))}"
