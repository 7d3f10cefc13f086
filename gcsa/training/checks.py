"""What can be refused before any data is read: values of the configuration, and checkpoints."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gcsa._utils.errors import UserError
from gcsa._utils.options import check_options
from gcsa._utils.validation import MAX_SEED, check_bool, check_choice, check_float, check_int, is_number, shown
from gcsa.training.task import Task, task_options
from gcsa.weights import check_tensors, read_checkpoint


def check_devices(accelerator: str, devices: Any) -> None:
    """Raises ValueError for an accelerator that is not here, and for more devices than the machine has."""
    gpu = accelerator in ("gpu", "cuda")
    check_choice("trainer.accelerator", accelerator, ("cpu", "gpu", "cuda", "auto"))
    if gpu and not torch.cuda.is_available():
        raise UserError(
            "trainer.accelerator=gpu, but torch sees no GPU on this machine: use trainer=cpu", "trainer.no_gpu"
        )
    if devices == "auto":
        return
    check_int("trainer.devices", devices)
    available = torch.cuda.device_count() if gpu else os.cpu_count() or 1
    if devices > available and accelerator != "auto":
        kind = "GPUs" if gpu else "CPU cores"
        raise UserError(f"trainer.devices={devices}, but this machine has {available} {kind}", "trainer.devices")


def check_average(trainer: Mapping[str, Any], callbacks: Mapping[str, Any]) -> None:
    """Raises ValueError where weights are to be averaged that Lightning shards, or that are float16."""
    if "_target_" not in (callbacks.get("ema") or {}):
        return
    strategy = trainer["strategy"]
    if isinstance(strategy, dict) and "ModelParallel" in strategy.get("_target_", ""):
        raise UserError(
            "sharded weights (trainer=fsdp2) cannot be averaged: add callbacks=no_ema, or use trainer=ddp",
            "callbacks.ema_sharded",
        )
    if trainer["precision"] == "16-true":
        raise UserError(
            "weights in trainer.precision=16-true cannot be averaged: add callbacks=no_ema, or use 16-mixed",
            "callbacks.ema_precision",
        )


def check_trainer(trainer: Mapping[str, Any]) -> None:
    """Raises ValueError, naming the key, for options of conf/trainer that cannot work, or that would end a run without
    a best epoch. What Lightning refuses at once is left to it."""
    check_devices(trainer["accelerator"], trainer["devices"])
    for key in ("max_epochs", "accumulate_grad_batches", "log_every_n_steps", "num_nodes", "check_val_every_n_epoch"):
        check_int(f"trainer.{key}", trainer[key])
    if trainer["max_steps"] != -1:
        check_int("trainer.max_steps", trainer["max_steps"])
    limit = trainer["max_time"]
    if limit is not None and not (re.fullmatch(r"\d+:\d\d:\d\d:\d\d", str(limit)) and int(str(limit).replace(":", ""))):
        raise UserError(
            f"trainer.max_time={shown(limit)} must be days:hours:minutes:seconds, such as 00:01:30:00",
            "trainer.max_time",
        )
    if trainer["gradient_clip_val"] is not None:
        check_float("trainer.gradient_clip_val", trainer["gradient_clip_val"], 0)
    for key in ("limit_train_batches", "limit_val_batches"):
        value = trainer[key]
        if not (is_number(value) and value > 0 and (isinstance(value, int) or value <= 1)):
            raise UserError(
                f"trainer.{key}={shown(value)} must be a share above 0 and up to 1.0, or a number of batches",
                "trainer.limit",
            )
    if trainer.get("fast_dev_run"):
        raise UserError(
            "trainer.fast_dev_run keeps no checkpoint: use trainer.max_epochs=1 trainer.limit_train_batches=1 "
            "trainer.limit_val_batches=1 test=false",
            "trainer.fast_dev_run",
        )


def check_config(cfg: dict[str, Any], task: Task) -> None:
    """Raises ValueError, naming the key, for a value of conf/train.yaml that cannot work for `task`."""
    check_options(task_options(cfg), task.options, owner=f"task={cfg['task']['name']}")
    monitored = task.monitored
    check_trainer(cfg["trainer"])
    check_average(cfg["trainer"], cfg["callbacks"])
    check_int("data.batch_size", cfg["data"]["batch_size"])
    for key in ("threads", "checkpoint_every_n_steps"):
        if cfg[key] is not None:
            check_int(key, cfg[key])
    check_int("seed", cfg["seed"], 0, MAX_SEED)
    for key in ("test", "checkpoint_activations"):
        check_bool(key, cfg[key])
    check_choice("matmul_precision", cfg["matmul_precision"], ("highest", "high", "medium"))
    if not isinstance(cfg["ckpt_path"], str | None):
        raise UserError(f"ckpt_path={shown(cfg['ckpt_path'])} must be last, a .ckpt of train.py or null", "ckpt_path")
    if cfg["monitor"]["metric"] not in monitored:
        raise UserError(
            f"monitor.metric={cfg['monitor']['metric']} is not measured with data={cfg['data']['name']}: choose one of "
            f"{', '.join(monitored)}, or take an experiment for such data (conf/experiment)",
            "monitor.metric",
        )
    mode = monitored[cfg["monitor"]["metric"]]
    if cfg["monitor"]["mode"] != mode:
        raise UserError(
            f"monitor.mode={shown(cfg['monitor']['mode'])} must be {mode} for monitor.metric={cfg['monitor']['metric']}",
            "monitor.mode",
        )
    if cfg["data"].get("train_on_val") and "_target_" in (cfg["callbacks"].get("early_stopping") or {}):
        raise UserError(
            "data.train_on_val=true leaves no validation to stop early by: use callbacks=default",
            "train_on_val.early_stopping",
        )


def resolve_checkpoint(ckpt_path: str | None, folder: Path, model: nn.Module) -> Path | None:
    """The checkpoint to resume: `ckpt_path`, or `folder`/last.ckpt for "last"; None starts afresh.

    Raises FileNotFoundError if there is none and ValueError if it is damaged or of another architecture than `model`,
    or if a fresh start would replace the checkpoints in `folder`.
    """
    if ckpt_path is None:
        earlier = sorted(folder.glob("*.ckpt"))
        if earlier:
            # A kill may have come between the first best.ckpt and the first last.ckpt.
            which = "last" if folder / "last.ckpt" in earlier else earlier[0]
            raise UserError(
                f"{folder} holds an earlier run: resume it with ckpt_path={which}, or set another output_dir",
                "output_dir.earlier_run",
            )
        return None
    path = folder / "last.ckpt" if ckpt_path == "last" else Path(ckpt_path)
    if not path.is_file():
        hint = ": give the folder of the run to resume as output_dir=..." if ckpt_path == "last" else ""
        raise FileNotFoundError(f"there is no checkpoint {path}{hint}")
    stored = read_checkpoint(path)["state_dict"]
    check_tensors(path, stored, model.state_dict())
    # Sharded weights are loaded without it. Raises ValueError for another kernel basis.
    model.load_state_dict({name: t for name, t in stored.items() if name.endswith("_extra_state")}, strict=False)
    return path
