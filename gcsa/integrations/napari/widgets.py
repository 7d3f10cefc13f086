"""The widgets of the plug-in: Segment, Audit rotations, and Embed objects. Networks run in a thread; windows are changed in the main one only."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from magicgui.widgets import (
    CheckBox,
    ComboBox,
    Container,
    FileEdit,
    FloatSpinBox,
    Label,
    PushButton,
    Slider,
    SpinBox,
    create_widget,
)
from napari.layers import Image, Labels
from napari.qt.threading import create_worker
from napari.utils.colormaps import DirectLabelColormap, ensure_colormap
from napari.utils.notifications import show_error
from napari.viewer import Viewer

from gcsa._utils.arrays import Array
from gcsa._utils.errors import UserError, one_line
from gcsa._utils.published import CONFIG, list_models, published
from gcsa.evaluation.poses import Turn
from gcsa.images.reader import as_picture
from gcsa.images.windows import ArrayImage
from gcsa.integrations.napari.embedding import embed_objects
from gcsa.integrations.napari.turning import Comparison, compare
from gcsa.tasks import load
from gcsa.tasks.base import Predictor
from gcsa.tasks.classification.predict import ClassificationPredictor
from gcsa.tasks.segmentation.predict import Segmentation, SegmentationPredictor
from gcsa.tasks.segmentation.writers import class_rows, object_rows

MICROMETRES = ("micrometer", "micron")
"""The unit of layers, as Pint calls it, in which tables have columns of their own."""
NO_IMAGE = "open an image first"
NO_LABELS = "find the objects first: Plugins > gcsa > Segment"
CHANGED: dict[Any, str] = {None: "transparent", 1: "red"}
"""Colours of pixels that stay, and of those that change."""


class Weights(Container):
    """The choice of published weights of some tasks, or of a file or folder of one's own; keeps the last predictor."""

    def __init__(self, *tasks: str) -> None:
        names = [name for task in tasks for name in list_models() if _task(name) == task]
        chosen = ComboBox(label="weights", choices=names)
        own = FileEdit(label="or your own", nullable=True, value=None, tooltip="a .ckpt, or a folder of weights")
        super().__init__(widgets=[chosen, own], layout="vertical", labels=True)
        self.margins = (0, 0, 0, 0)
        self.chosen, self.own, self.tasks = chosen, own, tasks
        self._last: tuple[str, Predictor] | None = None

    def source(self) -> str:
        """One's own weights where they are named, or else the chosen published ones."""
        return str(self.chosen.value if self.own.value is None else self.own.value)

    def load(self, source: str) -> Predictor:
        """The predictor of `source`. Raises UserError as `gcsa.load`, and for weights of another task."""
        if self._last is None or self._last[0] != source:
            predictor = load(source)
            if predictor.kind not in self.tasks:
                raise UserError(
                    f"{source} holds weights for {predictor.kind}: choose some for {' or '.join(self.tasks)}",
                    "weights.task",
                )
            self._last = source, predictor.fold().to("cuda" if torch.cuda.is_available() else "cpu")
        return self._last[1]


def _task(name: str) -> str:
    """The task of published weights."""
    folder = published(name)
    assert folder is not None
    return str(json.loads((folder / CONFIG).read_text(encoding="utf-8")).get("task"))


def plane(layer: Image | Labels, viewer: Viewer) -> tuple[Array, dict[str, Any]]:
    """The picture (H, W) or (H, W, C) of a layer that the window shows: the finest level, and of a stack the slice at the
    sliders; and the settings that put a layer of its size there."""
    data = layer.data[0] if layer.multiscale else layer.data
    if layer.ndim > 2:
        point = np.round(layer.world_to_data(viewer.dims.point)).astype(int)
        data = data[tuple(np.clip(point, 0, np.array(data.shape[: layer.ndim]) - 1)[:-2])]
    settings: dict[str, Any] = {"scale": layer.scale[-2:], "translate": layer.translate[-2:], "units": layer.units[-2:]}
    if layer.ndim == 2:
        settings |= {"rotate": layer.rotate, "shear": layer.shear, "affine": layer.affine}
    return np.asarray(data), settings


def pixel_size(layer: Image) -> tuple[float, float] | None:
    """Height and width of a pixel in micrometres; None where the layer does not say its unit."""
    if any(str(unit) not in MICROMETRES for unit in layer.units[-2:]):
        return None
    height, width = (float(size) for size in layer.scale[-2:])
    return height, width


def segmented(
    predictor: SegmentationPredictor, image: ArrayImage, scale: Any, thresholds: dict[str, float | None]
) -> Segmentation:
    """The result for an image with the `thresholds` that are not None. Raises UserError as `predict`, and for thresholds of classes."""
    chosen = {key: value for key, value in thresholds.items() if value is not None}
    if chosen and predictor.network.output == "classes":
        raise UserError(
            f"{' and '.join(chosen)} are of objects, and these weights find classes of pixels: set them to 0",
            "options.classes",
        )
    predictor = copy.copy(predictor)
    vars(predictor).update(chosen)
    result: Segmentation = predictor.predict(image, scale=scale)
    return result


def table(result: Segmentation, image: ArrayImage, size: tuple[float, float] | None) -> dict[str, Array]:
    """The columns of the table of gcsa segment, by their names; napari finds the row of a label by "index"."""
    rows = class_rows(result) if result.objects is None else object_rows(result, image, (), size)
    (_, *names), *values = rows
    columns = np.array(values, np.float64).reshape(-1, len(names) + 1).T
    return {"index": columns[0].astype(int), **dict(zip(names, columns[1:], strict=True))}


class Work(Container):
    """A widget that does one piece of work at a time in a thread, and says in `status` how it went."""

    def __init__(self, viewer: Viewer) -> None:
        super().__init__()
        self.viewer = viewer
        self.status = Label(value="")
        self.worker: Any = None

    def start(self, work: Callable[[], Any], done: Callable[[Any], None], what: str) -> None:
        """Runs `work` in a thread and gives its result to `done`. What a user can mend is said in `status`, and by napari."""

        def guarded() -> tuple[Any, Exception | None]:
            try:
                return work(), None
            except (ValueError, OSError, MemoryError) as error:
                return None, error

        def finished(outcome: tuple[Any, Exception | None]) -> None:
            result, error = outcome
            if error is None:
                done(result)
                return
            self.status.value = one_line(error, limit=None)
            show_error(self.status.value)

        self.status.value = what
        self.busy(True)
        progress = {"desc": what, "total": 0}
        self.worker = create_worker(guarded, _start_thread=False, _progress=progress)
        self.worker.returned.connect(finished)
        self.worker.finished.connect(self._finished)
        self.worker.start()

    def busy(self, is_busy: bool) -> None:
        """Called before and after each piece of work."""

    def _finished(self) -> None:
        self.worker = None
        self.busy(False)


class SegmentWidget(Work):
    """Finds the objects of an image, as gcsa segment does, and adds them as labels with their table."""

    def __init__(self, napari_viewer: Viewer) -> None:
        super().__init__(napari_viewer)
        self.image = create_widget(annotation=Image, label="image")
        self.weights = Weights(SegmentationPredictor.kind)
        spin: dict[str, Any] = dict(min=0.0, max=0.99, step=0.05, value=0.0, tooltip="0: as in the weights")
        self.prob_thresh = FloatSpinBox(label="prob_thresh", **spin)
        self.nms_thresh = FloatSpinBox(label="nms_thresh", **spin)
        self.scale = FloatSpinBox(label="scale", min=0.01, max=100.0, step=0.1, value=1.0)
        self.auto = CheckBox(
            label="auto scale", tooltip="a second pass where objects are of another size than in training"
        )
        self.button = PushButton(text="Segment")
        self.button.changed.connect(self.run)
        settings = [self.prob_thresh, self.nms_thresh, self.scale, self.auto]
        self.extend([self.image, self.weights, *settings, self.button, self.status])

    def busy(self, is_busy: bool) -> None:
        self.button.enabled = not is_busy

    def run(self) -> None:
        """Segments the chosen image in a thread."""
        layer = self.image.value
        if layer is None:
            self.status.value = NO_IMAGE
            return
        picture, place = plane(layer, self.viewer)
        source, scale = self.weights.source(), "auto" if self.auto.value else self.scale.value
        thresholds = {"prob_thresh": self.prob_thresh.value or None, "nms_thresh": self.nms_thresh.value or None}
        size = pixel_size(layer)

        def work() -> tuple[Segmentation, Array, dict[str, Array]]:
            predictor = self.weights.load(source)
            assert isinstance(predictor, SegmentationPredictor)
            image = ArrayImage(as_picture(picture, predictor.network.in_chans))
            result = segmented(predictor, image, scale, thresholds)
            return result, result.labels, table(result, image, size)

        def done(found: tuple[Segmentation, Array, dict[str, Array]]) -> None:
            result, labels, columns = found
            self.viewer.add_labels(labels, name=f"{layer.name} objects", features=columns, **place)
            self.status.value = "classes of pixels" if result.objects is None else f"{len(result.objects)} objects"

        self.start(work, done, f"segmenting {layer.name}")


class AuditWidget(Work):
    """Rotates an image by the angle of a slider, and shows which pixels and objects, or which scores, change."""

    def __init__(self, napari_viewer: Viewer) -> None:
        super().__init__(napari_viewer)
        self.image = create_widget(annotation=Image, label="image")
        self.weights = Weights(SegmentationPredictor.kind, ClassificationPredictor.kind)
        self.degrees = Slider(label="degrees", min=0, max=359, value=90, tracking=False)
        self.reflected = CheckBox(label="reflected", tooltip="first; at 0, 90, 180 and 270 degrees only")
        self.button = PushButton(text="Rotate")
        for control in (self.degrees, self.reflected, self.button):
            control.changed.connect(self.run)
        self.is_behind = False
        self.extend([self.image, self.weights, self.degrees, self.reflected, self.button, self.status])

    def busy(self, is_busy: bool) -> None:
        if not is_busy and self.is_behind:  # the slider was moved on meanwhile
            self.is_behind = False
            self.run()

    def run(self) -> None:
        """Compares the image at the chosen angle with itself in a thread. While one runs, only the last angle is kept."""
        layer = self.image.value
        if layer is None:
            self.status.value = NO_IMAGE
            return
        if self.worker is not None:
            self.is_behind = True
            return
        picture, place = plane(layer, self.viewer)
        source, degrees = self.weights.source(), float(self.degrees.value)
        turn = Turn(degrees, bool(self.reflected.value) and degrees % 90 == 0)

        def done(found: Comparison) -> None:
            self._show(found, layer.name, place, picture.shape[1])
            self.status.value = found.sentence

        self.start(lambda: compare(self.weights.load(source), picture, turn), done, f"{layer.name} at {turn}")

    def _show(self, found: Comparison, name: str, place: dict[str, Any], width: int) -> None:
        """The rotated image beside the image, and on this its objects and the pixels that change."""
        beside = {**place, "translate": place["translate"] + np.array([0, 1.05 * width]) * place["scale"]}
        seen = found.seen if found.seen.shape[2] == 3 else found.seen[..., 0]
        self._replace("add_image", seen, f"{name} rotated", beside)
        if found.upright is not None and found.changed is not None:
            self._replace("add_labels", found.upright, f"{name} objects upright", place)
            self._replace(
                "add_labels", found.changed.astype(np.uint8), f"{name} changed", {**place, "colormap": CHANGED}
            )

    def _replace(self, add: str, data: Array, name: str, settings: dict[str, Any]) -> None:
        """Adds a layer in the place of an earlier one of this name."""
        if name in self.viewer.layers:
            self.viewer.layers.remove(name)
        getattr(self.viewer, add)(data, name=name, **settings)


class EmbedWidget(Work):
    """Writes principal components of a classifier's features of each object into the features of its labels, and colours by the first."""

    def __init__(self, napari_viewer: Viewer) -> None:
        super().__init__(napari_viewer)
        self.image = create_widget(annotation=Image, label="image")
        self.labels = create_widget(annotation=Labels, label="objects")
        self.weights = Weights(ClassificationPredictor.kind)
        self.side = SpinBox(
            label="side",
            min=0,
            max=4096,
            value=0,
            tooltip="pixels of the square around an object; 0: of the network's input",
        )
        self.components = SpinBox(label="components", min=2, max=1000, value=10)
        self.button = PushButton(text="Embed")
        self.button.changed.connect(self.run)
        self.extend([self.image, self.labels, self.weights, self.side, self.components, self.button, self.status])

    def busy(self, is_busy: bool) -> None:
        self.button.enabled = not is_busy

    def run(self) -> None:
        """Embeds the objects of the chosen labels in a thread."""
        layer, objects = self.image.value, self.labels.value
        if layer is None or objects is None:
            self.status.value = NO_IMAGE if layer is None else NO_LABELS
            return
        (picture, _), (labels, _) = plane(layer, self.viewer), plane(objects, self.viewer)
        labels = labels.copy()  # they may be painted meanwhile
        source, side, components = self.weights.source(), self.side.value, self.components.value

        def work() -> tuple[dict[str, Array], float]:
            predictor = self.weights.load(source)
            assert isinstance(predictor, ClassificationPredictor)
            return embed_objects(predictor, picture, labels, side, components)

        def done(found: tuple[dict[str, Array], float]) -> None:
            columns, share = found
            objects.features = merged(objects.features, columns)
            objects.colormap = colours(columns["index"], columns["gcsa_1"])
            count = len(columns) - 1
            self.status.value = f"{len(columns['index'])} objects, {count} components with {share:.0%} of the variance"

        self.start(work, done, f"embedding the objects of {layer.name}")


def merged(table: Any, columns: dict[str, Array]) -> Any:
    """A table of features of labels with new columns in the place of earlier ones of `gcsa_`; rows are matched by `index`, or without
    that column, as napari does, by their number."""
    old = table.set_index("index") if "index" in table else table
    old = old.drop(columns=[name for name in old if name.startswith("gcsa_")])
    new = type(table)(columns).set_index("index")
    return old.join(new, how="outer").rename_axis("index").reset_index()


def colours(labels: Array, values: Array) -> DirectLabelColormap:
    """From dark to light by value."""
    scaled = (values - values.min()) / max(np.ptp(values), np.finfo(float).tiny)
    chosen = dict(zip(labels.tolist(), ensure_colormap("viridis").map(scaled), strict=True))
    return DirectLabelColormap(color_dict={None: "transparent", 0: "transparent", **chosen})
