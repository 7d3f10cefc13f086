"""All measurements of one model on one split, and the table that shows them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from torch import nn

from gcsa.evaluation.audit import (
    StageError,
    group_of,
    invariance_error,
    invariance_errors,
    smooth_rotation_error,
    stage_errors,
)
from gcsa.evaluation.cost import Cost, images_per_second, measure_cost
from gcsa.evaluation.figures import polar_figure, save
from gcsa.evaluation.metrics import Mistake, Reliability, Scores, predict, reliability, score, worst_mistakes
from gcsa.evaluation.rotations import ANGLES, Curve, RotatedCopies, rotation_curve, shift_curve
from gcsa.models.folding import fold
from gcsa.tasks.classification.data import GCSADataModule
from gcsa.tasks.classification.sample import draw_sample, first_images

AUDIT_IMAGES = 16
EXACT = 1e-4
"""Below this, a relative change of the logits under quarter turns is rounding."""


@dataclass(frozen=True)
class Report:
    """The result of `measure`; every number is explained where its class or function is defined. `averaged` are the scores
    of so many `RotatedCopies` as `copies` says, None for one."""

    scores: Scores
    copies: int
    averaged: Scores | None
    reliability: Reliability
    mistakes: list[Mistake]
    rotation: Curve
    shift_x: Curve
    shift_y: Curve
    invariance: dict[str, float]
    smooth_rotation_45: float
    stages: list[StageError]
    cost: Cost


def measure(
    model: nn.Module,
    datamodule: GCSADataModule,
    split: str = "test",
    limit: int | None = None,
    curve_images: int = 1000,
    cyclic: bool = False,
    copies: int = 1,
) -> Report:
    """Measures a timm model on `limit` images (None: all) of a split, of which `curve_images` turn and shift,
    and, for more than one, again on the mean over so many turned `copies`.

    Works on the model's device and leaves the model as it was; scores, curves and speed are of the folded model. Raises
    ValueError for an unknown split, numbers of images below 1, scores that are not finite and an adapter that is not merged;
    what `datamodule.setup` raises for missing or damaged data.
    """
    folded = fold(model)
    sample = draw_sample(datamodule, split, limit)
    curves = draw_sample(datamodule, split, min(curve_images, len(sample)))
    audit = first_images(curves, AUDIT_IMAGES)
    logits, labels = predict(folded, sample)
    invariance = invariance_errors(model, audit)
    turned = RotatedCopies(folded, copies, invariant=invariance.get("90 deg", 1.0) < EXACT)
    averaged = score(*predict(turned, sample)) if copies > 1 else None
    return Report(
        scores=score(logits, labels),
        copies=copies,
        averaged=averaged,
        reliability=reliability(logits, labels),
        mistakes=worst_mistakes(logits, labels),
        rotation=rotation_curve(folded, curves),
        shift_x=shift_curve(folded, curves, "x", cyclic),
        shift_y=shift_curve(folded, curves, "y", cyclic),
        invariance=invariance,
        smooth_rotation_45=smooth_rotation_error(model, datamodule.in_chans, datamodule.image_size),
        stages=stage_errors(model, audit),
        cost=measure_cost(model, first_images(sample, datamodule.batch_size)),
    )


def table(report: Report, model: nn.Module, title: str, trained: bool) -> Table:
    """The report on one screen; the last column holds the errors for smooth images turned by 45 degrees."""
    group, kind = group_of(model)
    screen = Table(title=title)
    screen.add_column("what", no_wrap=True)
    screen.add_column("value", justify="right", no_wrap=True)
    screen.add_column("at 45\N{DEGREE SIGN}", justify="right")
    if not trained:
        screen.add_row("[bold red]weights", "[bold red]untrained: random", end_section=True)
    scores, turns, cost = report.scores, report.rotation, report.cost
    screen.add_row(f"accuracy, {scores.images} images [95 %]", _with_interval(scores))
    if report.averaged is not None:
        screen.add_row(f"  of the mean over {report.copies} turned copies", _with_interval(report.averaged))
    if scores.auroc is not None:
        screen.add_row("AUROC", f"{scores.auroc:.4f}")
    screen.add_row("expected calibration error", f"{scores.calibration_error:.4f}", end_section=True)
    worst = min(range(len(turns.positions)), key=turns.accuracy.__getitem__)
    mean = sum(turns.accuracy) / len(turns.accuracy)
    screen.add_row(f"all turns, {turns.images} images: mean accuracy", f"{mean:.2%}")
    screen.add_row("  worst accuracy", f"{turns.accuracy[worst]:.2%} at {turns.positions[worst]:g}\N{DEGREE SIGN}")
    screen.add_row("  largest logit change", f"{max(turns.logit_change):.1e}")
    for axis, curve in (("x", report.shift_x), ("y", report.shift_y)):
        screen.add_row(f"shifts to {max(curve.positions)} px in {axis}: worst accuracy", f"{min(curve.accuracy):.2%}")
    screen.add_section()
    elements = f"exact elements of {group.name}" if getattr(model, "group", None) == group else "quarter turns"
    exact = max(report.invariance.values())
    screen.add_row(
        f"invariance error, {elements}", f"{exact:.1e}", f"{report.smooth_rotation_45:.1e}", end_section=True
    )
    screen.add_row("equivariance error of features" + ("" if kind == "regular" else " as scalar fields"))
    for stage in report.stages:
        at_45 = "" if stage.at_45 is None else f"{stage.at_45:.1e}"
        screen.add_row(f"  stage {stage.stage} ({' x '.join(map(str, stage.shape))})", f"{stage.exact:.1e}", at_45)
    screen.add_section()
    screen.add_row("parameters", f"{cost.parameters:,}")
    screen.add_row("FLOPs an image (a multiply-add is two)", f"{cost.flops:.3g}")
    screen.add_row(f"images/s, batch {cost.batch}, {cost.device}", f"{cost.images_per_second:.0f}")
    return screen


def _with_interval(scores: Scores) -> str:
    low, high = scores.interval
    return f"{scores.accuracy:.2%} [{low:.2%}, {high:.2%}]"


def summarize(
    model: nn.Module, datamodule: GCSADataModule, output_dir: str | Path, seconds: float = 30.0
) -> dict[str, Any]:
    """Invariance error and polar turn figure on the validation set: all of it, or, where that takes longer than about
    `seconds`, as many of its images as fit, but at least 64.

    Returns `invariance_error`, a float, and `figure`, the path of rotation.png in `output_dir`. Raises OSError where
    that cannot be written.
    """
    images = first_images(draw_sample(datamodule, "val"), AUDIT_IMAGES)
    count = int(images_per_second(model, images, repeats=3) * seconds / len(ANGLES))
    curve = rotation_curve(model, draw_sample(datamodule, "val", max(64, count)))
    figure = polar_figure({f"{curve.images} validation images": curve})
    return {
        "invariance_error": invariance_error(model, images),
        "figure": save(figure, Path(output_dir) / "rotation.png"),
    }
