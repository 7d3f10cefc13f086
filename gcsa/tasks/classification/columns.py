"""The evaluation of several labels or numbers: how good each column is, and how much the scores change with the pose."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from rich.table import Table
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.classification import MultilabelAUROC, MultilabelAveragePrecision
from torchmetrics.regression import MeanAbsoluteError, R2Score

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


def metrics_of(target: Target, num_columns: int) -> dict[str, Metric]:
    """Metrics that compute one value for each column (K,) from answers and labels (B, K)."""
    if isinstance(target, Labels):
        return {
            "average precision": MultilabelAveragePrecision(num_columns, average=None),
            "AUROC": MultilabelAUROC(num_columns, average=None),
        }
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
    found = {name: metric(answers, expected) for name, metric in metrics_of(target, len(names)).items()}
    values = {name: torch.as_tensor(value).reshape(-1).tolist() for name, value in found.items()}
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
            screen.add_row(f"  {key}", f"{value:.4g}")
    screen.add_section()
    screen.add_row("invariance error", f"{max(report.invariance.values()):.1e}")
    screen.add_row("parameters", f"{report.cost.parameters:,}")
    screen.add_row("FLOPs an image (a multiply-add is two)", f"{report.cost.flops:.3g}")
    screen.add_row(f"images/s, batch {report.cost.batch}, {report.cost.device}", f"{report.cost.images_per_second:.0f}")
    return screen
