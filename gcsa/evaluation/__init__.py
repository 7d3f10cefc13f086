"""Evaluation of any timm model: scores, turns and shifts, equivariance of every stage, cost and figures."""

from gcsa.evaluation.attention import attention_maps
from gcsa.evaluation.audit import (
    StageError,
    invariance_error,
    invariance_errors,
    smooth_images,
    smooth_turn_error,
    stage_errors,
)
from gcsa.evaluation.cost import Cost, count_flops, images_per_second, measure_cost
from gcsa.evaluation.figures import (
    attention_figure,
    cost_figure,
    learning_figure,
    mistakes_figure,
    polar_figure,
    reliability_figure,
    save,
    scaling_figure,
    share_figure,
    shift_figure,
)
from gcsa.evaluation.metrics import (
    Mistake,
    Reliability,
    Scores,
    predict,
    reliability,
    score,
    wilson_interval,
    worst_mistakes,
)
from gcsa.evaluation.turns import Curve, TurnedCopies, shift, shift_curve, turn, turn_curve

__all__ = [
    "Cost",
    "Curve",
    "Mistake",
    "Reliability",
    "Scores",
    "StageError",
    "TurnedCopies",
    "attention_figure",
    "attention_maps",
    "cost_figure",
    "count_flops",
    "images_per_second",
    "invariance_error",
    "invariance_errors",
    "learning_figure",
    "measure_cost",
    "mistakes_figure",
    "polar_figure",
    "predict",
    "reliability",
    "reliability_figure",
    "save",
    "scaling_figure",
    "score",
    "share_figure",
    "shift",
    "shift_curve",
    "shift_figure",
    "smooth_images",
    "smooth_turn_error",
    "stage_errors",
    "turn",
    "turn_curve",
    "wilson_interval",
    "worst_mistakes",
]
