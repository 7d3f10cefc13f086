"""The optimizer and its learning rates, for any LightningModule with a `model`."""

import difflib
import math
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from timm.optim import create_optimizer_v2, list_optimizers
from torch import nn

from gcsa._utils.errors import UserError
from gcsa._utils.validation import check_float
from gcsa.training.callbacks import time_limit
from gcsa.training.schedule import make_schedule

LARGEST_LR = 1000
"""Far beyond what any optimizer of timm asks for; torch's own bound, that of float32, is met in mid-training."""


def make_optimizer(model: nn.Module, options: dict[str, Any]) -> torch.optim.Optimizer:
    """timm's optimizer `opt`, `lr`, `weight_decay` and other arguments of `create_optimizer_v2`: biases, norms and the
    model's own `no_weight_decay` are not decayed. Raises ValueError for arguments that cannot work."""
    if options["opt"] not in list_optimizers():
        close = difflib.get_close_matches(options["opt"], list_optimizers()) or ["adamw", "sgd", "lamb"]
        raise UserError(
            f"unknown optimizer {options['opt']!r}: any of timm.optim.list_optimizers(), such as {', '.join(close)}",
            "optimizer.opt",
        )
    check_float("optimizer.lr", options["lr"], above=0, high=LARGEST_LR)
    for key in ("weight_decay", "momentum"):
        if options.get(key) is not None:
            check_float(f"optimizer.{key}", options[key], 0)
    if options.get("layer_decay") is not None:
        check_float("optimizer.layer_decay", options["layer_decay"], above=0, high=1)
        if not hasattr(model, "group_matcher") or hasattr(model, "peft_config"):
            raise UserError(
                "optimizer.layer_decay needs a timm model without an adapter, whose layers have an order: leave it out",
                "optimizer.layer_decay",
            )
    try:
        optimizer = create_optimizer_v2(model, **options)
    except TypeError as error:
        raise UserError(f"optimizer {options['opt']} does not take {options}: {error}", "optimizer.options") from error
    for group in optimizer.param_groups:  # of layer_decay, which timm leaves to its own schedulers
        group["lr"] *= group.get("lr_scale", 1.0)
    return optimizer


def optimizer_steps(trainer: pl.Trainer) -> int:
    """Optimizer steps of the whole run.

    With a data module they are counted here: in Lightning 2.6 `trainer.estimated_stepping_batches` builds the training
    loader before a checkpoint is restored, after which the loader's stored position is ignored.
    """
    data = getattr(trainer, "datamodule", None)
    if data is None:
        return int(trainer.estimated_stepping_batches)
    batches, limit = len(data.train_dataloader()), trainer.limit_train_batches
    batches = min(batches, limit) if isinstance(limit, int) else int(batches * limit)
    steps = math.ceil(batches / trainer.accumulate_grad_batches) * (trainer.max_epochs or 1)
    return min(steps, trainer.max_steps) if trainer.max_steps >= 0 else steps


def optimizer_and_schedule(module: pl.LightningModule) -> OptimizerLRScheduler:
    """For `configure_optimizers`, from the hyperparameters `optimizer` and `schedule`; the rate changes every step.

    With `trainer.max_time` the schedule is as far as the steps or the time are, whichever is further.
    """
    optimizer = make_optimizer(module.model, module.hparams["optimizer"])  # type: ignore[arg-type]
    beside: Any = getattr(module, "beside", None)
    if beside is not None:
        optimizer.add_param_group({"params": list(beside.parameters())})
    total, limit = optimizer_steps(module.trainer), time_limit(module.trainer)
    factor = make_schedule(total=total, **module.hparams["schedule"])

    def in_time(step: int) -> float:
        return factor(step if limit is None else max(step, round(limit.share * total)))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, in_time)
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}
