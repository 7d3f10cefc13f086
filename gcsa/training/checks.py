"""What can be refused before any data is read: values of the configuration, and checkpoints."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gcsa.checkpoints import check_tensors, read_checkpoint


def positive_int(key: str, value: Any) -> None:
    """Raises ValueError unless `value` is an integer above zero."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{key} must be a whole number above 0, got {value!r}")


def check_devices(accelerator: str, devices: Any) -> None:
    """Raises ValueError for an accelerator that is not here, and for more devices than the machine has."""
    gpu = accelerator in ("gpu", "cuda")
    if accelerator not in ("cpu", "gpu", "cuda", "auto"):
        raise ValueError(f"trainer.accelerator must be cpu, gpu or auto, got {accelerator!r}")
    if gpu and not torch.cuda.is_available():
        raise ValueError("trainer.accelerator=gpu, but torch sees no GPU on this machine: use trainer=cpu")
    if devices == "auto":
        return
    positive_int("trainer.devices", devices)
    available = torch.cuda.device_count() if gpu else len(os.sched_getaffinity(0))
    if devices > available and accelerator != "auto":
        kind = "GPUs" if gpu else "CPU cores"
        raise ValueError(f"trainer.devices={devices}, but this machine has {available} {kind}")


def check_average(trainer: Mapping[str, Any], callbacks: Mapping[str, Any]) -> None:
    """Raises ValueError where weights are to be averaged that Lightning shards, or that are float16."""
    if callbacks.get("ema") is None:
        return
    strategy = trainer["strategy"]
    if isinstance(strategy, dict) and "ModelParallel" in strategy.get("_target_", ""):
        raise ValueError("sharded weights (trainer=fsdp2) cannot be averaged: add callbacks=no_ema, or use trainer=ddp")
    if trainer["precision"] == "16-true":
        raise ValueError(
            "weights in trainer.precision=16-true cannot be averaged: add callbacks=no_ema, or use 16-mixed"
        )


def check_config(cfg: dict[str, Any], monitored: Collection[str]) -> None:
    """Raises ValueError, naming the key, for a value of conf/train.yaml that cannot work; `monitored` are the task's."""
    trainer = cfg["trainer"]
    check_devices(trainer["accelerator"], trainer["devices"])
    check_average(trainer, cfg["callbacks"])
    for key in ("max_epochs", "accumulate_grad_batches", "log_every_n_steps"):
        positive_int(f"trainer.{key}", trainer[key])
    positive_int("data.batch_size", cfg["data"]["batch_size"])
    for key in ("threads", "checkpoint_every_n_steps"):
        if cfg[key] is not None:
            positive_int(key, cfg[key])
    if isinstance(cfg["seed"], bool) or not isinstance(cfg["seed"], int) or cfg["seed"] < 0:
        raise ValueError(f"seed must be a whole number, 0 or more, got {cfg['seed']!r}")
    if cfg["monitor"]["metric"] not in monitored:
        raise ValueError(
            f"monitor.metric={cfg['monitor']['metric']} is not measured with data={cfg['data']['name']}: choose one of "
            f"{', '.join(monitored)}"
        )
    if cfg["monitor"]["mode"] not in ("max", "min"):
        raise ValueError(f"monitor.mode must be max or min, got {cfg['monitor']['mode']!r}")


def resolve_checkpoint(ckpt_path: str | None, folder: Path, model: nn.Module) -> Path | None:
    """The checkpoint to resume: `ckpt_path`, or `folder`/last.ckpt for "last"; None starts afresh.

    Raises FileNotFoundError if there is none and ValueError if it is damaged or of another architecture than `model`,
    or if a fresh start would replace the checkpoints in `folder`.
    """
    if ckpt_path is None:
        if any(folder.glob("*.ckpt")):
            raise ValueError(f"{folder} holds an earlier run: resume it with ckpt_path=last, or set another output_dir")
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
