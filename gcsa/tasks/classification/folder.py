"""Many images through a classifier, or a part of it: answers in a table, features in a file."""

from __future__ import annotations

import base64
import csv
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import h5py
import numpy as np
import torch
from torch import nn

from gcsa import batch
from gcsa._utils.arrays import Array
from gcsa._utils.errors import UserError
from gcsa.evaluation.evaluation_mode import evaluation_mode
from gcsa.images.prepare import Prepare
from gcsa.images.reader import image_size, open_image
from gcsa.images.source import ImageSource
from gcsa.tasks.classification.predict import ClassificationPredictor
from gcsa.tasks.classification.targets import Classes, Labels, Numbers

MOST_PIXELS = 16**2
"""How many times the pixels of the network's input an image may have: of more, the network would see a thumbnail."""
ALIKE = 1.25
"""By which factor the micrometres a pixel of images may differ from those that weights see, as `data.augment.scale` has it."""
CUT = "cut it into patches of that size"


class ImageWork(batch.Work[Path]):
    """What `network` gives for images (D,), in batches of at most `batch_size` images.

    A slide, and an image above `MOST_PIXELS`, is none that the network sees whole: `instead` says what to do with it.
    """

    def __init__(
        self,
        predictor: Any,
        network: nn.Module,
        batch_size: int,
        settings: Mapping[str, Any],
        instead: str = CUT,
        confidence: Callable[[Array], Sequence[float]] | None = None,
    ) -> None:
        """network: of `predictor`, or a part of it. confidence: of answers (N, D), for the report."""
        self.predictor, self.network, self.instead, self.confidence = predictor, network, instead, confidence
        self.prepare = prepare = predictor.preprocess
        self.about: dict[str, Any] = {}
        self.settings = settings
        self.together = prepare.together(batch_size)

    def do(self, items: Sequence[Path], pace: batch.Pace) -> Iterator[batch.Result | Exception]:
        with evaluation_mode(self.network) as where:
            found: list[Any] = []
            for path in items:
                pace.show(str(path))
                found.append(batch.attempt(self._read, path))
                pace.ahead(len(found))
            seen = [image for image, _ in filter(_is_read, found)]
            rows = self.network(torch.stack(seen).to(where)).float().cpu().numpy() if seen else np.empty((0, 0))
        sure = self.confidence(rows) if self.confidence is not None and seen else [None] * len(seen)
        answers = zip(rows, sure, strict=True)
        for one in found:
            if not _is_read(one):
                yield one
                continue
            row, confidence = next(answers)
            text = base64.b64encode(row.astype("<f4").tobytes()).decode()
            yield batch.Result({"row": text, **one[1], "confidence": confidence})

    def _read(self, path: Path) -> tuple[torch.Tensor, dict[str, Any]]:
        """An image as the network sees it, and what `collect` tells: whether it had another size, and its micrometres a pixel where they are
        not those of the weights."""
        try:
            str(path).encode()
        except UnicodeEncodeError:
            raise UserError(f"{str(path)!a} has a name that is not UTF-8: rename it", "image.name") from None
        with open_image(path, scanner=True) as image:
            resized = _checked_size(image, self.prepare.size, self.instead) != (self.prepare.size, self.prepare.size)
            same = self.prepare.mpp is None or image.mpp is None or 1 / ALIKE < image.mpp / self.prepare.mpp < ALIKE
            return self.prepare(image), {"resized": resized, "mpp": None if same else image.mpp}


def _is_read(found: Any) -> bool:
    return not isinstance(found, Exception)


def collect(run: batch.Run[Path], prepare: Prepare) -> tuple[list[str], Array]:
    """The names of the images that could be read, and the rows of their answers (N, D). How many had another size than the network's is
    said on stderr."""
    names: list[str] = []
    rows: list[Array] = []
    resized = 0
    scales: list[tuple[Path, float]] = []
    for path, result in run.results():
        if not result.finished:
            continue
        names.append(str(path))
        rows.append(np.frombuffer(base64.b64decode(result.values["row"]), "<f4"))
        resized += result.values["resized"]
        if result.values["mpp"] is not None:
            scales.append((path, result.values["mpp"]))
    if resized:
        what = "they are padded to a square and resized" if prepare.pad else "their centre square is resized"
        side, at_scale = prepare.size, ""
        if prepare.mpp is not None:  # the network knows one scale, so that a larger image is not only seen less sharply
            at_scale = (
                f"; the weights see {prepare.mpp:g} micrometres a pixel, and what is cut or resized shows another scale"
            )
        print(f"{resized} of {len(run.items)} images are not {side} x {side} pixels: {what}{at_scale}", file=sys.stderr)
    if scales:
        path, mpp = scales[0]
        print(
            f"warning: {len(scales)} of {len(run.items)} images state another scale than the weights see, "
            f"{prepare.mpp:g} micrometres a pixel (the first is {path}, {mpp:g}): scale them first, or cut them from the slide",
            file=sys.stderr,
        )
    return names, np.stack(rows) if rows else np.empty((0, 0), np.float32)


def _checked_size(image: ImageSource, side: int, instead: str) -> tuple[int, int]:
    """Width and height of an image. Raises UserError for one that is too large to be seen as a square of `side` pixels."""
    if image.is_pyramid:
        raise UserError(
            f"{image.name} is a slide or a pyramid, of which the network would see a thumbnail: {instead}",
            "image.slide",
        )
    width, height = image_size(image)
    if width * height > MOST_PIXELS * side**2:
        raise UserError(
            f"{image.name} holds {height} x {width} pixels, and the network sees {side} x {side}: {instead}",
            "image.too_large",
        )
    return width, height


def write_answers(
    stream: TextIO,
    names: Sequence[str],
    answers: Array,
    ood_scores: Sequence[float | None],
    predictor: ClassificationPredictor,
) -> None:
    """Writes a table with a row for each image: what it shows, its OOD score, and the answer (N, K) of each class, label or number."""
    classes, kind = predictor.class_names, predictor.target.kind
    beside = {Classes.kind: ["label", "confidence"], Labels.kind: ["labels"], Numbers.kind: []}[kind]
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["file", *beside, *([] if predictor.ood_scorer is None else ["ood_score"]), *classes])
    for name, row, ood_score in zip(names, answers, ood_scores, strict=True):
        shown = [f"{value:.6g}" for value in row]  # more digits would differ between the poses of an image
        shown_score = [] if ood_score is None else [f"{ood_score:.3f}"]
        if kind == Classes.kind:
            best = int(row.argmax())
            writer.writerow([name, classes[best], shown[best], *shown_score, *shown])
        elif kind == Labels.kind:
            labels = "|".join(label for label, value in zip(classes, row, strict=True) if value >= 0.5)
            writer.writerow([name, labels, *shown_score, *shown])
        else:
            writer.writerow([name, *shown_score, *shown])


def write_features(path: Path, features: Array, names: Sequence[str], about: Mapping[str, Any]) -> None:
    """Writes the features (N, D) of images and their names into a file .h5 or .parquet, which says `about` too."""
    if path.suffix == ".h5":
        buffer = io.BytesIO()  # where a disk is full, HDF5's own writer ends the process
        with h5py.File(buffer, "w") as file:
            file["features"] = features
            file.create_dataset("files", data=list(names), dtype=h5py.string_dtype())
            file.attrs.update(about)
        path.write_bytes(buffer.getbuffer())
        return
    import pyarrow
    from pyarrow import parquet

    column = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(features.ravel()), features.shape[1])
    table = pyarrow.table({"file": pyarrow.array(names, pyarrow.string()), "features": column})
    parquet.write_table(table.replace_schema_metadata({key: json.dumps(value) for key, value in about.items()}), path)
