"""From images to label maps: the one path that validation, the choice of thresholds, gcsa evaluate and gcsa segment take."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from gcsa._utils.arrays import Array
from gcsa._utils.errors import UserError
from gcsa._utils.options import Range, explain
from gcsa._utils.validation import check_choice, check_float
from gcsa.actions import transform_array, transformed_shape
from gcsa.evaluation.audited import Audited, AuditOptions, Progress, check_some, read_pictures, silent
from gcsa.evaluation.evaluation_mode import evaluation_mode
from gcsa.evaluation.poses import turns
from gcsa.groups import Group
from gcsa.images.choices import STAINS
from gcsa.images.intensity import normalize
from gcsa.images.reader import as_picture
from gcsa.images.slides import open_window_source
from gcsa.images.stain import StainImage, may_be_stained
from gcsa.images.windows import (
    ArrayImage,
    ScaledImage,
    Windowed,
    WindowedImage,
    contrast,
    counts,
    resampled,
    row_windows,
)
from gcsa.models.unet import UNet
from gcsa.symmetry import SymmetryOptions, canonical_pose
from gcsa.tasks.base import Exporter, Predictor
from gcsa.tasks.ood import OODScorer, image_statistics, reduced_outputs
from gcsa.tasks.segmentation.choices import AUTO
from gcsa.tasks.segmentation.network import Segmenter
from gcsa.tasks.segmentation.pose import TransformedImage, TransformedWindows, transform_objects
from gcsa.tasks.segmentation.stars import (
    DrawnObjects,
    Labels,
    Objects,
    Renumbered,
    check_installed,
    disc_diameter,
    find_candidates,
    pixel_counts,
    suppress,
)
from gcsa.tasks.segmentation.tiles import predict_tiles
from gcsa.weights import Weights, fill, write

SAME_SIZE = (0.6, 1.7)
"""Objects whose median diameter is so many times that of training are read as they are (docs/measured/nuclei.md)."""
FEWEST = 3
"""Objects that tell a size."""
LEAST_CONTRAST = 4.0
"""In a picture with less `contrast`, noise is all there is (docs/measured/nuclei.md)."""


@dataclass(frozen=True, kw_only=True)
class PredictorOptions(SymmetryOptions):
    """Options of a `SegmentationPredictor`; all others of a model are of the network."""

    pmin: Annotated[float, Range(0, 100), "percentile of an image that becomes 0"] = 1.0
    pmax: Annotated[float, Range(0, 100), "percentile of an image that becomes 1"] = 99.8
    prob_thresh: Annotated[float, Range(0.001, 0.999), "probability from which a pixel can be a centre"] = 0.5
    nms_thresh: Annotated[float, Range(0, 1), "share of the smaller of two objects that both may cover"] = 0.4
    diameter: Annotated[
        Annotated[float, Range(1, 10_000)] | None, "median diameter in pixels of the objects that it was trained on"
    ] = None
    symmetry: Annotated[
        Literal["canonical"] | None, "canonical: a network without a group sees images in their canonical pose"
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pmin >= self.pmax:
            raise UserError(f"pmin={self.pmin} must be below pmax={self.pmax}", "pmin", pmin=self.pmin, pmax=self.pmax)


@dataclass(frozen=True)
class Segmentation:
    """The label map (H, W) of an image, and its objects.

    Attributes:
        label_map: int32. Object i is `objects[i - 1]`, and 0 is the background; or the class of each pixel. A map of objects is drawn
            window by window, so that large images need no memory for it.
        objects: of a network for instances, the highest score first; each is a polygon around its pixels. None for classes.
        num_classes: of a network for classes.
        origin: row and column of the first pixel in the picture that the image was cut from; files of results count from its corner.
        ood_score: above 1, the image is unlike those of training; None where the weights do not tell (`gcsa.tasks.ood`).
        stain: whose amount the network saw; None for the image itself.
    """

    label_map: Windowed
    objects: Objects | None
    num_classes: int = 2
    origin: tuple[int, int] = (0, 0)
    ood_score: float | None = None
    stain: str | None = None

    @cached_property
    def labels(self) -> Labels:
        """The whole label map (H, W), drawn once and kept."""
        return np.ascontiguousarray(self.label_map.window(0, 0, *self.label_map.shape))

    @property
    def max_label(self) -> int:
        """The largest number that the label map may hold."""
        return self.num_classes - 1 if self.objects is None else len(self.objects)

    def without_small(self, least: int) -> Segmentation:
        """Without the objects of fewer than `least` pixels; the others keep their order, and are numbered without gaps."""
        assert self.objects is not None
        return self._only(pixel_counts(self.label_map, len(self.objects) + 1) >= least)

    def without_pale(self, stained: StainImage) -> Segmentation:
        """Without the objects that hold less of the stain, in the mean, than Otsu's threshold of the picture; numbered as by
        `without_small`."""
        from skimage.filters import threshold_otsu

        assert self.objects is not None
        count, occurring = len(self.objects) + 1, counts(stained, np.uint16)
        if np.count_nonzero(occurring) == 1:  # white, which has no threshold
            return self._only(np.zeros(count, bool))
        amounts, pixels = np.zeros(count), np.zeros(count)
        rows, columns = (old / new for old, new in zip(stained.shape, self.label_map.shape, strict=True))
        for top, labels in row_windows(self.label_map):
            if stained.shape == self.label_map.shape:
                values = stained.window(top, 0, top + len(labels), labels.shape[1])
            else:
                values = resampled(stained, (top * rows, 0.0), (rows, columns), (len(labels), labels.shape[1]))
            amounts += np.bincount(labels.ravel(), values[..., 0].ravel(), count)
            pixels += np.bincount(labels.ravel(), minlength=count)
        return self._only(amounts >= pixels * threshold_otsu(hist=occurring))

    def _only(self, kept: Array) -> Segmentation:
        """The objects i of which `kept[i]` (1 + objects,) is true."""
        assert self.objects is not None
        kept[0] = False
        numbers = np.where(kept, kept.cumsum(), 0).astype(np.int32)
        return replace(self, label_map=Renumbered(self.label_map, numbers), objects=self.objects[kept[1:]])


@dataclass(frozen=True)
class Candidates:
    """The output of the network for an image in its canonical pose, before thresholds.

    Attributes:
        pose: the element of the group that takes the image to this pose.
        shape: height and width in this pose.
        objects: all polygons above the threshold at which they were found; None for classes.
        classes: the class of each pixel; None for instances.
        ood_score: as of `Segmentation`.
    """

    pose: int
    shape: tuple[int, int]
    objects: Objects | None
    classes: Labels | None
    ood_score: float | None = None

    def resized(self, shape: tuple[int, int]) -> Candidates:
        """Those of the image with another shape, in this pose."""
        if shape == self.shape:
            return self
        objects = None if self.objects is None else self.objects.resized(self.shape, shape)
        classes = None if self.classes is None else nearest(self.classes, shape)
        return Candidates(self.pose, shape, objects, classes, self.ood_score)


class SegmentationPredictor(Predictor):
    """A `Segmenter` with the normalisation in front of it, and suppression and drawing of objects behind it.

    Args:
        network: a `Segmenter`, or a module with its interface; is set to eval mode.
        settings: those of `PredictorOptions`, which become attributes.

    Raises:
        UserError: a value out of its range.
    """

    kind = "segmentation"
    audit_kind = "segmenter"
    network: Any

    def __init__(self, network: Any, **settings: Any) -> None:
        o = PredictorOptions(**settings)
        super().__init__(network, self._scaled)
        self.pmin, self.pmax, self.prob_thresh, self.nms_thresh = o.pmin, o.pmax, o.prob_thresh, o.nms_thresh
        self.diameter = o.diameter
        self.make_exact(o.symmetry, o.symmetry_group)

    def make_exact(self, symmetry: str | None, symmetry_group: str | None = None) -> None:
        """Shows the network every image in its canonical pose under `symmetry_group`, by default d4: results then rotate with
        the image, whatever the network. Raises UserError for a network with a group of its own, which does so already."""
        o = PredictorOptions(symmetry=symmetry, symmetry_group=symmetry_group)  # type: ignore[arg-type]
        o.check_needed(self.network.name, self.network.group)
        self.symmetry, self.symmetry_group = o.symmetry, o.symmetry_group

    @property
    def group(self) -> Group:
        """The group under which results are exact."""
        if self.symmetry is None:
            return self.network.group
        return SymmetryOptions(symmetry=self.symmetry, symmetry_group=self.symmetry_group).group

    @classmethod
    def create(cls, name: str, **options: Any) -> SegmentationPredictor:
        """A predictor with random weights, from the options of `Segmenter` and of this class."""
        of_network, settings = split_options(options)
        return cls(Segmenter(name, **of_network), **settings)

    @property
    def options(self) -> dict[str, Any]:
        """All options but the name, as a file of weights holds them."""
        settings = {key: getattr(self, key) for key in explain(PredictorOptions)}
        return {**self.network.options, **{key: value for key, value in settings.items() if value is not None}}

    def save_pretrained(self, folder: str | Path, about: Mapping[str, Any] | None = None) -> Path:
        """Writes config.json and model.safetensors into `folder`, for `gcsa.load`; returns it. Raises as `gcsa.weights.write`.

        `ood_scorer` is written as it is: set it to None for a network that was trained further, whose features are others.
        """
        network, source = self.network, type(self).__name__
        tensors, notes = network.state_dict(), dict(about or {})
        entries = {} if self.ood_scorer is None else {"ood_score": self.ood_scorer.entry()}
        return write(
            Weights(source, self.kind, network.name, self.options, tensors, about=notes, entries=entries), folder
        )

    @property
    def exporters(self) -> dict[str, Exporter]:
        return super().exporters | {"bioimageio": _to_bioimageio}

    @property
    def input_size(self) -> tuple[int, int, int]:
        """A crop of its training."""
        return self.network.in_chans, 256, 256

    def describe(self) -> dict[str, Any]:
        settings = {key: getattr(self, key) for key in ("pmin", "pmax", "prob_thresh", "nms_thresh", "diameter")}
        return super().describe() | {"output": self.network.output} | settings

    def audit(
        self,
        images: Sequence[Path],
        options: AuditOptions,
        network: nn.Module | None = None,
        progress: Progress = silent,
    ) -> Audited:
        from gcsa.tasks.segmentation.audit import EMPTY, audit

        failed: list[str] = []
        with progress((len(turns(options.steps)) + 1) * len(images)) as advance:
            pictures = read_pictures(images, self.network.in_chans, failed)
            found, is_empty = audit(self, pictures, options.steps, advance)
        check_some(images, failed)
        return Audited(self.audit_kind, found, failed, note=EMPTY if is_empty else "")

    def limits(self, image: WindowedImage) -> tuple[float, float]:
        """The values of an image that become 0 and 1."""
        return image.percentiles(self.pmin, self.pmax)

    def _scaled(self, image: Any) -> Tensor:
        """An image, as `predict` takes it, to float32 (in_chans, H, W), scaled by its percentiles; nothing is clipped."""
        with open_image(image, self.network.in_chans) as source:
            picture = source.window(0, 0, *source.shape)
            return torch.from_numpy(normalize(picture, *self.limits(source)))

    def scale_for(self, diameter: float) -> float:
        """The factor that brings objects of this diameter in pixels to that of the training objects. Raises UserError for weights
        that do not say theirs."""
        check_float("diameter", diameter, above=0)
        if self.diameter is None:
            raise UserError(
                "these weights do not say how large their training objects were: give a scale instead",
                "scale.no_diameter",
            )
        return self.diameter / diameter

    def own_scale(self, found: Segmentation) -> float:
        """The scale at which to read an image again, from what was found in it at scale 1: 1 where its objects are about as large as
        those of training, or too few to tell. Raises UserError as `scale_for`, and for a network for classes."""
        if found.objects is None:
            raise UserError(
                "scale='auto' goes by the size of objects, which a network for classes does not tell apart",
                "scale.classes",
            )
        diameter = disc_diameter(pixel_counts(found.label_map, len(found.objects) + 1)[1:])
        if diameter is None or len(found.objects) < FEWEST:
            return 1.0
        scale = self.scale_for(diameter)
        return 1.0 if SAME_SIZE[0] <= 1 / scale <= SAME_SIZE[1] else scale

    def predict(
        self,
        images: Any,
        *,
        scale: float | Literal["auto"] = 1.0,
        stain: str | None = AUTO,
        tile: int | None = None,
        shape: tuple[int, int] | None = None,
        whole: WindowedImage | None = None,
        progress: Callable[[float], object] = lambda fraction: None,
    ) -> Any:
        """The `Segmentation` of an image, or a list of them for a list of images.

        An image is read in its canonical pose: the label map of a rotated or reflected image is exactly the transformed one. Where its
        contrast is less than `LEAST_CONTRAST`, it has no objects.

        Args:
            images: as in `Predictor.predict`, or a `gcsa.images.windows.WindowedImage`.
            scale: the network sees the image magnified by this factor; results are of the image as it is. "auto" reads at 1, and
                again where the objects that it found are of another size than those of training (`own_scale`).
            stain: "haematoxylin" or "dab": the network sees the amount of this stain, in which nuclei of H&E, or those that an antibody
                marks, are as bright as in fluorescence, and objects with little of it are left out (`Segmentation.without_pale`). "auto":
                that of haematoxylin, where it is shown a bright picture in colour whose OOD score is above 1, and above that of the stain;
                the score told is that of the picture. None: it sees the picture.
            tile: side of the tiles of large images, in pixels; None chooses.
            shape: height and width of the results, where the image is a smaller level of a picture of this shape; None: its own.
            whole: the picture that the image is a part of, whose percentiles then scale it; None: its own.
            progress: called with the fraction completed by each tile.

        Raises:
            UserError: an image that cannot be read or has other channels, a scale that is not between 1/100 and 100, an unknown stain
                or one of a picture that has none, or a tile that does not fit the network.
            MissingExtraError: instances without StarDist.
            OSError: a file that cannot be opened.
        """
        if isinstance(images, list | tuple):
            options: dict[str, Any] = dict(
                scale=scale, stain=stain, tile=tile, shape=shape, whole=whole, progress=progress
            )
            return [self.predict(image, **options) for image in images]
        if stain is not None:
            check_choice("stain", stain, (AUTO, *STAINS))
        with open_image(images, self.network.in_chans) as opened:
            read = partial(self._read, whole=whole, scale=scale, tile=tile, progress=progress)
            image = StainImage(opened, stain) if stain in STAINS else opened
            candidates = read(image)
            unlike = candidates.ood_score
            if stain == AUTO and unlike is not None and unlike > 1 and may_be_stained(opened):
                stained = StainImage(opened)
                again = read(stained)
                if again.ood_score is not None and again.ood_score < unlike:
                    image, candidates = stained, replace(again, ood_score=unlike)
            upright = transformed_shape(shape or image.shape, self.group, candidates.pose)
            result = self.finish(candidates.resized(upright))
            if not isinstance(image, StainImage):
                return result
            result = replace(result, stain=image.stain)
            return result if result.objects is None else result.without_pale(image)

    def _read(
        self,
        image: WindowedImage,
        whole: WindowedImage | None,
        scale: float | Literal["auto"],
        tile: int | None,
        progress: Callable[[float], object],
    ) -> Candidates:
        """The candidates of an image, or of its stain, at the scale that is asked for; as `predict`."""
        if whole is not None and isinstance(image, StainImage):
            whole = StainImage(whole, image.stain)
        limits = None if whole is None else self.limits(whole)
        read = partial(self.predict_candidates, image, tile=tile, limits=limits, progress=progress)
        candidates = read(scale=1.0 if scale == "auto" else scale)
        if scale == "auto" and (factor := self.own_scale(self.finish(candidates))) != 1:
            candidates = read(scale=factor)
        return candidates

    @torch.inference_mode()
    def predict_candidates(
        self,
        image: WindowedImage,
        *,
        prob_thresh: float | None = None,
        scale: float = 1.0,
        tile: int | None = None,
        limits: tuple[float, float] | None = None,
        progress: Callable[[float], object] = lambda fraction: None,
    ) -> Candidates:
        """Runs the network, in tiles: all objects above `prob_thresh` (default: the predictor's), or the classes. `limits` are the values
        that become 0 and 1 (default: those of the image).

        Raises as `predict`.
        """
        check_float("scale", scale, 0.01, 100)
        if self.network.output == "instances":
            check_installed()
        prob_thresh = self.prob_thresh if prob_thresh is None else prob_thresh
        limits = self.limits(image) if limits is None else limits
        noise_only = self.network.output == "instances" and contrast(image) < LEAST_CONTRAST
        pose = canonical_pose(image, self.group)
        upright = TransformedImage(image, self.group, pose)
        seen: WindowedImage = upright if scale == 1 else ScaledImage(upright, scale)
        objects: list[Objects] = []
        classes: Labels | None = np.zeros(seen.shape, np.int32) if self.network.output == "classes" else None
        unet = None if self.ood_scorer is None else unet_of(self.network)
        encoders = [] if unet is None else [unet.encoder]
        with evaluation_mode(self.network), reduced_outputs(encoders, pooled) as features:
            for part, wider, maps in predict_tiles(self.network, seen, limits, tile, progress):
                if classes is not None:  # of tied classes, argmax takes the first
                    inner = maps.argmax(0)[part.slices(wider.top, wider.left)]
                    classes[part.slices()] = inner.cpu().numpy()
                else:
                    nearby = find_candidates(maps, 1.0 if noise_only else prob_thresh).shifted(wider.top, wider.left)
                    rows, columns = nearby.points.T
                    inside = (rows >= part.top) & (rows < part.bottom) & (columns >= part.left) & (columns < part.right)
                    objects.append(nearby[inside])
                del maps  # before those of the next tile are made
        ood_score = (
            float(self.ood_scorer(torch.stack(features).mean(0)[None])) if self.ood_scorer and features else None
        )
        if classes is not None:
            return Candidates(pose, upright.shape, None, nearest(classes, upright.shape), ood_score)
        return Candidates(
            pose, upright.shape, Objects.joined(objects).resized(seen.shape, upright.shape), None, ood_score
        )

    @torch.inference_mode()
    def features(self, image: WindowedImage) -> Tensor | None:
        """The features (D,) of an image, in the mean over its tiles, from which its OOD score is computed; None for a network without."""
        unet = unet_of(self.network)
        if unet is None:
            return None
        encoder: Any = EncoderOnly(unet)
        upright = TransformedImage(image, self.group, canonical_pose(image, self.group))
        with evaluation_mode(encoder):
            for _ in predict_tiles(encoder, upright, self.limits(image), None, lambda fraction: None):
                pass
        return torch.stack(encoder.found).mean(0)

    def finish(
        self, candidates: Candidates, *, prob_thresh: float | None = None, nms_thresh: float | None = None
    ) -> Segmentation:
        """Suppresses the candidates of an image, and transforms the result back to the pose of the image.

        Objects are numbered from the highest score. Those that others hide wholly are left out.
        """
        group, shape = self.group, candidates.shape
        back = int(group.inverse[candidates.pose])
        if candidates.classes is not None:
            classes = np.ascontiguousarray(transform_array(candidates.classes, group, back))
            return Segmentation(ArrayImage(classes), None, self.network.num_classes, ood_score=candidates.ood_score)
        assert candidates.objects is not None
        prob_thresh = self.prob_thresh if prob_thresh is None else prob_thresh
        objects = candidates.objects[candidates.objects.scores > prob_thresh]
        objects = suppress(objects, self.nms_thresh if nms_thresh is None else nms_thresh, shape)
        objects = objects[pixel_counts(DrawnObjects(objects, shape), len(objects) + 1)[1:] > 0]
        label_map = TransformedWindows(DrawnObjects(objects, shape), group, back)
        objects = transform_objects(objects, shape, group, back)
        return Segmentation(label_map, objects, self.network.num_classes, ood_score=candidates.ood_score)


def _to_bioimageio(source: str, file: Path) -> str:
    from gcsa.tasks.segmentation.bioimageio import write_bioimageio

    error = write_bioimageio(source, file)
    size_mb = file.stat().st_size / 1e6
    return f"{file} (bioimageio, {size_mb:.1f} MB) differs from the model by {error:.1e}: bioimageio test {file}"


def unet_of(network: Any) -> UNet | None:
    """The U-Net of gcsa in a `Segmenter`, whose features give an OOD score; None in others."""
    unet = getattr(network, "network", None)
    return unet if isinstance(unet, UNet) else None


def pooled(images: Tensor, maps: list[Tensor]) -> Tensor:
    """What the OOD score looks at (D,), of the first of the normalised images (B, C, H, W): its `image_statistics`, and of the maps (B, h, w,
    N, C) of a U-Net's encoder the mean of each over positions and group."""
    means = [part[0].mean((0, 1, 2), dtype=torch.float32) for part in maps]
    return torch.cat([image_statistics(images[:1])[0], *means]).cpu().double()


class EncoderOnly(nn.Module):
    """A U-Net as `predict_tiles` asks for one that keeps the `pooled` features of each pass in `found` and computes no more."""

    def __init__(self, unet: UNet) -> None:
        super().__init__()
        self.encoder, self.found = unet.encoder, list[Tensor]()
        self.size_divisor, self.min_size, self.margin = unet.size_divisor, unet.min_size, unet.margin

    def forward(self, images: Tensor) -> Tensor:
        self.found.append(pooled(images, self.encoder(images)))
        return images  # of the size of the maps


def nearest(classes: Labels, shape: tuple[int, int]) -> Labels:
    """A map of classes (H, W) with another shape, each pixel that of the nearest one."""
    rows, columns = (
        (2 * np.arange(new) + 1) * side // (2 * new) for side, new in zip(classes.shape, shape, strict=True)
    )
    return classes[np.ix_(rows, columns)]


@contextmanager
def open_image(image: Any, channels: int) -> Iterator[WindowedImage]:
    """Yields a `WindowedImage` for an image in any form that `predict` takes. Raises as `predict`."""
    if isinstance(image, str | os.PathLike):
        with open_window_source(Path(image), channels) as source:
            yield source
    elif hasattr(image, "window"):
        yield image
    else:
        yield ArrayImage(as_picture(image, channels))


def split_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of the network, and those of the predictor, without the ones that are None."""
    chosen = {key: value for key, value in options.items() if value is not None}
    settings = {key: chosen.pop(key) for key in explain(PredictorOptions) if key in chosen}
    return chosen, settings


def make_predictor(weights: Weights, adapter: str | Path | None = None) -> SegmentationPredictor:
    """The predictor that `weights`, as read, describe. Raises UserError for weights of another task, for an adapter, and for an OOD score
    of another network."""
    if adapter is not None:
        raise UserError(
            f"{weights.source} is a segmenter, which takes no adapter: leave out {adapter}", "adapter.segmenter"
        )
    options, settings = split_options(weights.options)
    predictor = SegmentationPredictor(fill(lambda: Segmenter(weights.architecture, **options), weights), **settings)
    predictor.ood_scorer, unet = OODScorer.of(weights), unet_of(predictor.network)
    if predictor.ood_scorer is not None and unet is not None:  # before a slide is read
        statistics = image_statistics(torch.zeros(1, predictor.network.in_chans, 2, 2)).shape[1]
        predictor.ood_scorer.check(statistics + sum(level.fields for level in unet.encoder.levels))
    return predictor
