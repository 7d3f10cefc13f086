"""Training and evaluation of segmenters; see `gcsa.training.task`."""

from pathlib import Path
from typing import Any, ClassVar

import torch

from gcsa._utils.arrays import Array
from gcsa._utils.errors import UserError
from gcsa._utils.options import Options
from gcsa.evaluation.cost import count_flops
from gcsa.images.windows import ArrayImage
from gcsa.tasks.evaluating import evenly_spread
from gcsa.tasks.ood import MOST_IMAGES, OODScorer
from gcsa.tasks.segmentation.data.datamodule import MasksDataModule, Nuclei
from gcsa.tasks.segmentation.evaluate import evaluate_masks, measure_transformed
from gcsa.tasks.segmentation.losses import label_validator, labels_are_classes, make_targets, split_validator
from gcsa.tasks.segmentation.module import SegmentationModule, check_crop
from gcsa.tasks.segmentation.predict import SegmentationPredictor
from gcsa.tasks.segmentation.stars import check_installed, median_diameter
from gcsa.tasks.segmentation.thresholds import choose_thresholds
from gcsa.training.task import data_options, make_data, model_options

MODULES = {module.name: module for module in (Nuclei, MasksDataModule)}
COUNTED_SIDE = 256
"""Side in pixels of the image whose FLOPs are counted."""
SMALL = 96
"""Side in pixels of the small pictures whose OOD score shall be below 1."""
DEFAULTS = {"output": "instances", "num_classes": 2, "rays": 32}
"""Options of the network on which the targets depend."""


class Task:
    """The task of images with label maps; see `gcsa.training.task.Task`."""

    module = SegmentationModule
    options = Options
    monitored: ClassVar = dict.fromkeys(("val/ap50", "val/pq", "val/dice", "val/iou"), "max")

    def build_data(self, cfg: dict[str, Any]) -> MasksDataModule:
        """The data module of `cfg["data"]`, which has read nothing yet. Raises UserError for options that it refuses."""
        options: dict[str, Any] = {key: cfg["model"].get(key) or default for key, default in DEFAULTS.items()}
        output, num_classes = options["output"], options["num_classes"]
        return self._data(
            cfg,
            targets=make_targets(**options),
            label_validator=label_validator(output, num_classes),
            labels_are_classes=labels_are_classes(output, num_classes),
            split_validator=split_validator(output, num_classes),
        )

    def _data(self, cfg: dict[str, Any], **options: Any) -> MasksDataModule:
        return make_data(MODULES[cfg["data"]["name"]], {**data_options(cfg), **options})

    def build_module(self, cfg: dict[str, Any], data: MasksDataModule) -> SegmentationModule:
        """The segmenter of `cfg`, which normalises as `data` does. Raises UserError for arguments that it refuses."""
        if "rank" in (cfg.get("adapter") or {}):
            raise UserError(
                "a segmenter takes no low-rank adapter: adapter=full trains all weights of adapter.base",
                "adapter.segmenter",
            )
        model = {key: value for key, value in model_options(cfg).items() if value is not None and key != "img_size"}
        if model.get("output", "instances") == "instances":
            check_installed()
        elif cfg["monitor"]["metric"] in ("val/ap50", "val/pq"):
            raise UserError(
                f"monitor.metric={cfg['monitor']['metric']} is of instances: take val/dice for model.output=classes",
                "monitor.classes",
            )
        pmin, pmax = data.percentiles
        optimizer = dict(cfg["optimizer"])
        schedule = optimizer.pop("schedule")
        model |= {"in_chans": data.in_chans, "pmin": pmin, "pmax": pmax}
        module = SegmentationModule(model=model, schedule=schedule, optimizer=optimizer)
        check_crop(data.crop, module.model.size_divisor, module.model.min_size)
        return module

    def export(self, module: SegmentationModule, data: MasksDataModule, folder: Path) -> str:
        """Chooses the thresholds on the validation images, fits the OOD scorer, and writes the weights into `folder`, which it
        returns."""
        module.eval()
        data.setup("fit")  # a process that only started others has read nothing yet
        if module.model.output == "instances":
            module.predictor.diameter = median_diameter(example.labels for example in data.images("train"))
            choose_thresholds(module.predictor, ((example.image, example.labels) for example in data.images("val")))
        module.predictor.ood_scorer = fit_ood_scorer(module.predictor, data)
        return str(module.predictor.save_pretrained(folder, {"data": data.name}))

    def evaluate(self, config: dict[str, Any], output_dir: Path) -> dict[str, Any]:
        """The scores of a segmenter, see `evaluate_masks`."""
        return evaluate_masks(config, lambda **options: self._data(config, **options))

    def count_flops(self, module: SegmentationModule, data: MasksDataModule) -> int:
        """FLOPs of an image of `COUNTED_SIDE` pixels a side."""
        return count_flops(module.model, torch.zeros(data.in_chans, COUNTED_SIDE, COUNTED_SIDE))

    def measure(
        self, module: SegmentationModule, data: MasksDataModule, scores: dict[str, float], output_dir: Path
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """The changes of rotated and reflected test images, the thresholds, and lines for the screen."""
        module.eval()
        turned = measure_transformed(
            module.predictor, ((example.picture, example.labels) for example in data.images("test"))
        )
        shown = {"test dice": f"{scores['test/dice']:.4f}"}
        change = f"{turned['pixels']} pixels"
        if "test/ap50" in scores:
            shown["test AP at IoU 0.5"] = f"{scores['test/ap50']:.4f}"
            change += f" and {turned['objects']} objects"
        shown["rotated and reflected"] = f"{change} change"
        predictor = module.predictor
        return {"turned": turned, "prob_thresh": predictor.prob_thresh, "nms_thresh": predictor.nms_thresh}, shown


def views(picture: Array) -> list[Array]:
    """A picture (H, W, C), and the `SMALL` pixels in its middle: the features of a small picture, a mean over fewer positions, differ
    more."""
    top, left = (max(0, (side - SMALL) // 2) for side in picture.shape[:2])
    return [picture, picture[top : top + SMALL, left : left + SMALL]]


def fit_ood_scorer(predictor: SegmentationPredictor, data: MasksDataModule) -> OODScorer | None:
    """The scorer of images that are unlike those of training, whose limit the validation images set; None for a network that has no
    features of a whole image, and for too few images."""
    splits = []
    for split in ("train", "val"):
        pictures = [
            part for example in evenly_spread(data.images(split), MOST_IMAGES) for part in views(example.picture)
        ]
        rows = [predictor.features(ArrayImage(picture)) for picture in pictures]
        if not rows or any(row is None for row in rows):
            return None
        splits.append(torch.stack([row for row in rows if row is not None]))
    return OODScorer.fit(*splits)
