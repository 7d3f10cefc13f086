"""The patches of slides through a network: NAME.h5 and NAME_patches.png for each slide, and the heat map of a class.

A run that was killed goes on where it stopped: finished slides are not read again, and NAME.h5.part holds the rows of the one that
was read. Several processes share a slide by batches of patches: NAME.h5.part.N holds the rows from number N on. `NAME_patches.png` shows which parts of the slide are embedded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from torch import nn

from gcsa import batch
from gcsa._utils.arrays import Array
from gcsa._utils.atomic import replacing
from gcsa._utils.errors import UserError
from gcsa.images.pixels import naming
from gcsa.images.planes import Plane
from gcsa.images.prepare import Prepare
from gcsa.images.slides import Roi, Slide, open_slide
from gcsa.tasks.classification.heatmap import draw_heatmap, save_heatmap
from gcsa.tasks.classification.patches import (
    OOD_SCORES,
    Patches,
    RowStore,
    attributes,
    choose_patches,
    embed_patches,
    parts_of,
    rows_file,
    save_picture,
    write_features,
)
from gcsa.tasks.classification.predict import WithOODScore
from gcsa.weights.fingerprint import differ, fingerprint

TISSUE = 0.25
"""Least share of tissue in a patch, by default."""
LEAST_PATCHES = 4_096
"""Of a part of a slide: each process that does one starts, opens the slide and looks for tissue first. Two processes took 48 seconds for a
slide of 13,351 patches, and one 70; for a smaller one 26 and 19."""


@dataclass(frozen=True)
class Cut:
    """Which patches of a slide are taken: the options of --patches, None where they were not given."""

    mpp: float | None = None
    slide_mpp: float | None = None
    tissue: float | None = None
    level: int | None = None
    roi: Roi | None = None
    channel: int | str | None = None
    z: int | str | None = None
    time: int | None = None

    def settings(self, mpp: float | None) -> dict[str, Any]:
        """What the file of a slide says of it; mpp: of the weights."""
        settings: dict[str, Any] = {"tissue": TISSUE if self.tissue is None else self.tissue}
        settings |= {"mpp": mpp if self.mpp is None else self.mpp} if self.level is None else {"level": self.level}
        settings |= {} if self.roi is None else {"roi": str(self.roi)}
        others = {name: getattr(self, name) for name in ("slide_mpp", "channel", "z", "time")}
        return settings | {name: value for name, value in others.items() if value is not None}

    @property
    def plane(self) -> Plane | None:
        """Which picture of stacks is embedded; None where no option says it."""
        plane = Plane(self.channel, self.z, self.time)
        return None if plane == Plane() else plane


@dataclass(frozen=True)
class Heat:
    """The heat map of the class `name`; `probability` takes features (N, D) to its probabilities (N,)."""

    name: str
    probability: Callable[[Any], Array]

    def file(self, folder: Path, slide: Path) -> Path:
        """Its picture; what no file may be called becomes an underscore."""
        safe = re.sub(r"[^\w.-]", "_", self.name)
        return folder / f"{slide.stem}_heatmap_{safe}.png"


class SlideWork(batch.Work[Path]):
    """Embeds the patches of a slide into `folder`."""

    smaller = "cut the slide, or name a smaller --roi"

    def __init__(
        self,
        network: nn.Module,
        prepare: Prepare,
        folder: Path,
        about: Mapping[str, Any],
        cut: Cut,
        batch_size: int,
        settings: Mapping[str, Any],
        heat: Heat | None = None,
        overwrite: bool = False,
    ) -> None:
        """network: gives features and, if it is a `WithOODScore`, the OOD score. about: the settings of the network, among them `weights`, its
        name. heat: slides that were embedded before get the picture that they lack, and are embedded anew
        only to `overwrite` what is there.

        Raises UserError without a scale.
        """
        if cut.mpp is None and prepare.mpp is None and cut.level is None:
            raise UserError(
                f"{about['weights']} does not say at how many micrometres a pixel it sees tissue: give --mpp",
                "mpp.missing",
            )
        self.network, self.prepare, self.folder, self.cut = network, prepare, folder, cut
        self.batch_size, self.heat, self.overwrite = prepare.together(batch_size), heat, overwrite
        self.scored = isinstance(network, WithOODScore)
        self.columns = ("patches", "ood_patches") if self.scored else ("patches",)
        self.about: dict[str, Any] = {
            key: value.tolist() if isinstance(value, np.ndarray) else list(value) if isinstance(value, tuple) else value
            for key, value in about.items()
        } | cut.settings(prepare.mpp)
        if any(True for _ in network.parameters()):
            self.about["fingerprint"] = fingerprint(network)
        self.settings = settings

    def outputs(self, item: Path) -> list[Path]:
        drawn = [] if self.heat is None else [self.heat.file(self.folder, item)]
        return [_file(self.folder, item), *drawn]

    def one(self, item: Path, pace: batch.Pace) -> batch.Result:
        file, *drawn = self.outputs(item)
        about = _of(item, self.about)
        with self._opened(item, about) as (slide, patches):
            shape, said = slide.shape, f"{file}: there already"
            if not self._is_there(file, about):
                said = self._embed(slide, patches, about, file, pace)
        unlike = _unlike(file) if self.scored else None
        if self.heat is not None:
            _draw(file, drawn[0], patches, shape, self.heat, unlike)
        above = None if unlike is None else int(unlike.sum())
        return batch.Result({"said": said, "patches": len(patches.corners), "ood_patches": above})

    def _embed(self, slide: Slide, patches: Patches, about: Mapping[str, Any], file: Path, pace: batch.Pace) -> str:
        """Writes the files of one slide, and returns the line that says so."""
        store = self._rows(file, about)
        before, count = store.count, len(patches.corners)

        def progress(done: int) -> None:
            pace.ahead(store.count / count)
            pace.may_stop()  # the rows are stored

        options = self.batch_size, progress
        for first in parts_of(file):
            part = self._rows(file, about, first)
            if part.count:
                embed_patches(self.network, self.prepare, slide, patches.between(0, first), store, *options)
                store.append(part.rows()[store.count - first :])
        embed_patches(self.network, self.prepare, slide, patches, store, *options)
        of_coords = attributes(slide, patches, self.prepare.size, file.stem, str(file.parent))
        with replacing(file.with_name(f"{file.stem}_patches.png")) as whole:
            save_picture(whole, patches)
        rows = store.rows()
        features, ood_scores = (rows[:, :-1], rows[:, -1]) if self.scored else (rows, None)
        with replacing(file) as whole:
            write_features(whole, features, patches.corners, of_coords, about, ood_scores)
        for left in (None, *parts_of(file)):
            rows_file(file, left).unlink()
        again = f", {before} of them from before" if before else ""
        return f"{file}: {count} patches, {features.shape[1]} features each{again}"

    def parts(self, item: Path, most: int) -> int:
        file, about = _file(self.folder, item), _of(item, self.about)
        if self._is_there(file, about):
            return 1
        with self._opened(item, about) as (_, patches):
            left = len(patches.corners) - self._rows(file, about).count
        return max(1, min(most, left // LEAST_PATCHES))

    def part(self, item: Path, number: int, parts: int) -> None:
        file, about = _file(self.folder, item), _of(item, self.about)
        with self._opened(item, about) as (slide, patches):
            before = self._rows(file, about).count // self.batch_size * self.batch_size
            batches = -(-(len(patches.corners) - before) // self.batch_size)
            first, last = (before + batches * end // parts * self.batch_size for end in (number, number + 1))
            store = self._rows(file, about, first)
            embed_patches(self.network, self.prepare, slide, patches.between(first, last), store, self.batch_size)

    def _is_there(self, file: Path, about: Mapping[str, Any]) -> bool:
        return not self.overwrite and _is_embedded(file, about, self.scored)

    def _rows(self, file: Path, about: Mapping[str, Any], first: int | None = None) -> RowStore:
        return RowStore(rows_file(file, first), {**about, OOD_SCORES: self.scored})

    @contextmanager
    def _opened(self, item: Path, about: Mapping[str, Any]) -> Iterator[tuple[Slide, Patches]]:
        with open_slide(item, 3, plane=self.cut.plane) as slide:
            with naming(item):
                scales = about.get("mpp"), self.cut.slide_mpp
                patches = choose_patches(
                    slide, self.prepare.size, *scales, about["tissue"], self.cut.level or 0, self.cut.roi
                )
            yield slide, patches


def _file(folder: Path, slide: Path) -> Path:
    return folder / f"{slide.stem}.h5"


def _of(path: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the file of one slide: another slide of that name has another stamp."""
    return {**settings, "slide": path.name, "slide_stamp": batch.stamp(path)}


def _is_embedded(file: Path, about: Mapping[str, Any], scored: bool) -> bool:
    """Whether a slide has its features, with or without OOD scores, and lacks only the picture of a class."""
    try:
        with h5py.File(file) as opened:
            same = (OOD_SCORES in opened) == scored
            there = {key: value.tolist() if hasattr(value, "tolist") else value for key, value in opened.attrs.items()}
    except OSError:
        return False
    marks = there.pop("fingerprint", ""), about.get("fingerprint", "")
    return same and there == {key: value for key, value in about.items() if key != "fingerprint"} and not differ(*marks)


def _unlike(file: Path) -> Array:
    """Which of the patches in `file` are unlike those of training (N,)."""
    with h5py.File(file) as opened:
        return opened[OOD_SCORES][:] > 1


def _draw(file: Path, drawn: Path, patches: Patches, shape: tuple[int, int], heat: Heat, unlike: Array | None) -> None:
    """Writes the heat map of the features in `file`."""
    with h5py.File(file) as opened:
        values = heat.probability(opened["features"])
    with replacing(drawn) as part:
        save_heatmap(part, draw_heatmap(patches, shape, values, heat.name, unlike))
