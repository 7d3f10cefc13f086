"""The evaluation of several labels or numbers: how good each column is, and how much the scores change with the pose."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from rich.table import Table
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.classification import MultilabelAUROC, MultilabelAveragePrecision
from torchmetrics.regression import MeanAbsoluteError, R2Score
from torchmetrics.wrappers.abstract import WrapperMetric

from gcsa._utils.errors import UserError
from gcsa.evaluation.audit import invariance_errors
from gcsa.evaluation.cost import Cost, measure_cost
from gcsa.evaluation.metrics import predict
from gcsa.models.folding import fold
from gcsa.tasks.classification.targets import Labels, Target

AUDIT_IMAGES = 16


@dataclass(frozen=True)
class ColumnReport:
    """`columns` has the metrics of each column by their names; `invariance` the relative change of the scores by pose."""

    images: int
    columns: dict[str, dict[str, float]]
    invariance: dict[str, float]
    cost: Cost


class OverColumns(WrapperMetric):
    """A metric of torchmetrics that ranks the images by each of `num_columns` labels, (K,). It is NaN, where torchmetrics says 0, for a
    label that all or none of the images have; with `mean`, the mean without these, ()."""

    seen: Tensor

    def __init__(self, metric: Metric, num_columns: int, mean: bool = False) -> None:
        super().__init__()
        self.metric, self.mean = metric, mean
        self.add_state("seen", torch.zeros(2, num_columns, dtype=torch.long), dist_reduce_fx="sum")

    def update(self, answers: Tensor, labels: Tensor) -> None:
        self.metric.update(answers, labels)
        self.seen += torch.stack([(labels == value).sum(0) for value in (0, 1)])

    def compute(self) -> Tensor:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "No (positive|negative) samples")
            values = torch.where((self.seen > 0).all(0), self.metric.compute(), torch.nan)
        return values.nanmean() if self.mean else values

    def reset(self) -> None:
        super().reset()
        self.metric.reset()


RANKINGS: dict[str, Callable[[int], Metric]] = {
    "average_precision": partial(MultilabelAveragePrecision, average=None),
    "auroc": partial(MultilabelAUROC, average=None),
}
"""Metrics of torchmetrics for `OverColumns`, from a number of columns."""


def mean_of_columns(make: Callable[[int], Metric], num_columns: int) -> Metric:
    """The mean of one of `RANKINGS` over the columns of which it can be told."""
    return OverColumns(make(num_columns), num_columns, mean=True)


def ranked(labels: Tensor) -> Tensor:
    """Of labels (M, K), or classes (M,) of two, whether both 0 and 1 occur: (K,), or ()."""
    return (labels == 0).any(0) & (labels == 1).any(0)


def metrics_of(target: Target, num_columns: int) -> dict[str, Metric]:
    """Metrics that compute one value for each column (K,) from answers and labels (B, K)."""
    if isinstance(target, Labels):
        names = {"average_precision": "average precision", "auroc": "AUROC"}
        return {names[key]: OverColumns(make(num_columns), num_columns) for key, make in RANKINGS.items()}
    return {
        "mean absolute error": MeanAbsoluteError(num_outputs=num_columns),
        "R\N{SUPERSCRIPT TWO}": R2Score(multioutput="raw_values"),
    }


def measure_columns(
    model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], target: Target, names: Sequence[str], images: Tensor
) -> ColumnReport:
    """Measures a timm model on all `batches`; its change with the pose and its cost on `images` (B, C, H, W).

    Raises UserError where scores are not finite.
    """
    scores, labels = predict(fold(model), batches)
    if bad := int((~scores.isfinite()).any(1).sum()):
        raise UserError(
            f"the model gives NaN or infinite scores for {bad} of {len(scores)} images", "scores.not_finite", bad=bad
        )
    answers, expected = target.answers(scores), target.expected(labels)
    values = {}
    for name, metric in metrics_of(target, len(names)).items():
        metric.update(answers, expected)
        values[name] = metric.compute().reshape(-1).tolist()
    columns = {name: {key: row[place] for key, row in values.items()} for place, name in enumerate(names)}
    return ColumnReport(
        len(labels), columns, invariance_errors(model, images[:AUDIT_IMAGES]), measure_cost(model, images)
    )


def table(report: ColumnReport, title: str, trained: bool) -> Table:
    """The report on one screen."""
    screen = Table(title=title)
    screen.add_column("measure", no_wrap=True)
    screen.add_column("value", justify="right", no_wrap=True)
    if not trained:
        screen.add_row("[bold red]weights", "[bold red]untrained: random", end_section=True)
    for name, values in report.columns.items():
        screen.add_row(f"{name}, {report.images} images")
        for key, value in values.items():
            screen.add_row(f"  {key}", "no image with or none without it" if math.isnan(value) else f"{value:.4g}")
    screen.add_section()
    screen.add_row("invariance error", f"{max(report.invariance.values()):.1e}")
    add_cost(screen, report.cost)
    return screen


def add_cost(screen: Table, cost: Cost) -> None:
    """Adds the rows of a cost to a table of measures and values."""
    screen.add_row("parameters", f"{cost.parameters:,}")
    screen.add_row("FLOPs an image (a multiply-add is two)", f"{cost.flops:.3g}")
    screen.add_row(f"images/s, batch {cost.batch}, {cost.device}", f"{cost.images_per_second:.0f}")
