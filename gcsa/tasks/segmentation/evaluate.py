"""gcsa evaluate for segmenters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torchmetrics import MetricCollection

from gcsa._utils.arrays import Array
from gcsa.actions import transform_array
from gcsa.groups import group
from gcsa.tasks import load
from gcsa.tasks.evaluating import check_config, chosen_device, content, evenly_spread, show
from gcsa.tasks.segmentation.data.datamodule import MasksDataModule
from gcsa.tasks.segmentation.data.pairs import SPLITS
from gcsa.tasks.segmentation.losses import label_validator, labels_are_classes
from gcsa.tasks.segmentation.metrics import TransformedScores, build_metrics
from gcsa.tasks.segmentation.predict import SegmentationPredictor
from gcsa.tasks.segmentation.stars import Labels, check_installed, check_numbers

NAMES = {
    **{f"ap{share}": f"average precision at IoU 0.{share // 10}" for share in range(50, 100, 10)},
    "ap50_by_image": "average precision at IoU 0.5, mean over images",
    "pq": "panoptic quality",
    "dice": "Dice of objects, or mean over classes",
    "iou": "IoU of objects, or mean over classes",
}
"""Names of the results in the table."""


def evaluate_masks(config: dict[str, Any], build_data: Callable[..., MasksDataModule]) -> dict[str, Any]:
    """Dice, IoU and instance scores of `config["model"]` on a held-out split or on "all" of the data, and the changes of its
    label maps when images are rotated and reflected.

    build_data: makes the data module from its `in_chans`, `percentiles`, `label_validator` and `labels_are_classes`. Prints a table and returns JSON-ready values.
    Raises UserError for a configuration, weights or images that cannot be used.
    """
    check_config(config, ("val", "test", "all"), options=("symmetry", "symmetry_group"))
    splits = SPLITS if config["split"] == "all" else (config["split"],)
    build_data().listed(*splits)
    predictor: Any = load(config["model"], task="segmentation").to(chosen_device(config))
    if config["symmetry"] is not None or config["symmetry_group"] is not None:
        predictor.make_exact(config["symmetry"], config["symmetry_group"])
    network = predictor.network
    if network.output == "instances":
        check_installed()
    data = build_data(
        in_chans=network.in_chans,
        percentiles=[predictor.pmin, predictor.pmax],
        label_validator=label_validator(network.output, network.num_classes),
        labels_are_classes=labels_are_classes(network.output, network.num_classes),
    )
    examples = [data.example(pair) for pair in evenly_spread(data.listed(*splits), config["limit"])]
    if network.output == "instances":
        check_numbers([example.labels for example in examples])
    metrics = MetricCollection(dict(build_metrics(network.output, network.num_classes)), compute_groups=False)
    for example in examples:
        metrics.update(predictor.predict(example.picture).labels, example.labels)
    results = {name: float(value) for name, value in metrics.compute().items()}
    turned = measure_transformed(predictor, ((example.picture, example.labels) for example in examples))
    shown = {
        f"{name} that change in rotated and reflected images": turned[name]
        for name in ("pixels", "objects")
        if name in turned
    }
    show(config, f"{len(examples)} images", results | shown, NAMES)
    return content(config, pictures=len(examples), results=results, turned=turned)


def measure_transformed(predictor: SegmentationPredictor, examples: Iterable[tuple[Array, Labels]]) -> dict[str, Any]:
    """Compares the prediction for each image with those for its seven rotated and reflected copies, for any network.

    examples: images (H, W, C) with their label maps (H, W). Returns those of `TransformedScores` for instances; for classes,
    whose numbers have a meaning, `pixels` that change and `of_pixels` in all.
    """
    d4, instances = group("d4"), TransformedScores()
    pixels = {"pixels": 0, "of_pixels": 0}
    for image, labels in examples:
        upright = predictor.predict(image)
        for g in d4.exact_elements[1:]:
            result = predictor.predict(transform_array(image, d4, g)).labels
            back = transform_array(result, d4, int(d4.inverse[g]))
            if upright.objects is not None:
                instances.update(upright.labels, back, labels)
            else:
                pixels["pixels"] += int((upright.labels != back).sum())
                pixels["of_pixels"] += back.size
    return instances.compute() if predictor.network.output == "instances" else pixels
