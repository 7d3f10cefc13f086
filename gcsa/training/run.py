"""One training run, from a configuration to checkpoints, exported weights and results.json."""

import json
import logging
import time
import warnings
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.callbacks import LearningRateMonitor, ModelCheckpoint

from gcsa.training.adapt import adapt, count_parameters, save_and_merge
from gcsa.training.callbacks import StepSeed, StopOnNaN
from gcsa.training.checkpoint_io import AtomicCheckpointIO
from gcsa.training.checks import check_config, resolve_checkpoint
from gcsa.training.distributed import leave_group
from gcsa.training.results import git_commit, machine, write_json
from gcsa.training.task import Task


def quiet_lightning() -> None:
    """Leaves out Lightning's advertisements and warnings that ask nothing of the user."""
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in (
        ".*LeafSpec",
        "Checkpoint directory .* exists",
        ".*not have many workers",
        ".*logging interval",
        ".*WeightAveraging callback with a model that overrides",  # where shards are asked for, check_config refuses it
    ):
        warnings.filterwarnings("ignore", message)


def checkpoint_activations(model: Any, name: str) -> None:
    """Has `model`, or the encoder of a recogniser, forget the activations within its blocks and compute them again
    (Chen et al. 2016). Raises ValueError for a model that cannot."""
    model = getattr(model, "encoder", model)
    try:
        model.set_grad_checkpointing(True)
    except (AttributeError, AssertionError, ValueError) as error:
        raise ValueError(f"model={name} cannot checkpoint activations: leave checkpoint_activations=false") from error


def build_trainer(cfg: DictConfig, output_dir: Path) -> pl.Trainer:
    """The Lightning trainer with its callbacks and loggers; writes nothing yet."""
    loggers = [instantiate(node) for node in cfg.logger.values() if node is not None]
    callbacks = [instantiate(node) for node in cfg.callbacks.values() if node is not None]
    callbacks += [StepSeed(cfg.seed), StopOnNaN(cfg.trainer.log_every_n_steps)]
    if not loggers:  # the learning rate then has nowhere to go, which Lightning would refuse
        callbacks = [callback for callback in callbacks if not isinstance(callback, LearningRateMonitor)]
    return instantiate(
        cfg.trainer,
        callbacks=callbacks,
        logger=loggers or False,
        plugins=[AtomicCheckpointIO()],
        default_root_dir=str(output_dir),
    )


def best_checkpoint(trainer: pl.Trainer) -> ModelCheckpoint:
    """The callback that keeps the best epoch. Raises ValueError where the configuration has none."""
    first = trainer.checkpoint_callback
    if not isinstance(first, ModelCheckpoint) or first.monitor is None:
        raise ValueError("the first checkpoint callback must have a monitor: keep callbacks.best")
    return first


def train(task: Task, cfg: DictConfig, output_dir: Path) -> float:
    """Fits, tests the best checkpoint once (if `test`), exports it and writes results.json into `output_dir`.

    Returns the best value of the monitored validation metric, for sweeps. Raises ValueError or FileNotFoundError
    for a configuration that cannot work, before any data is read, and FloatingPointError when the loss is not finite.
    """
    config: dict[str, Any] = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)  # type: ignore[assignment]
    quiet_lightning()
    check_config(config, task.monitored)
    if cfg.threads is not None:
        torch.set_num_threads(cfg.threads)
    torch.set_float32_matmul_precision(cfg.matmul_precision)
    pl.seed_everything(cfg.seed, verbose=False)
    data = task.build_data(config)
    module = task.build_module(config, data)
    if config["checkpoint_activations"]:
        checkpoint_activations(module.model, config["model"]["name"])
    if config.get("adapter") is not None:
        adapt(module, config["adapter"])
    trainer = build_trainer(cfg, output_dir)
    ckpt_path = resolve_checkpoint(config["ckpt_path"], output_dir / "checkpoints", module)
    best_checkpoint(trainer)

    started = time.monotonic()
    trainer.fit(module, data, ckpt_path=ckpt_path, weights_only=True)
    seconds = time.monotonic() - started
    best = best_checkpoint(trainer).best_model_path
    if leave_group(trainer):
        report(task, config, best, data, output_dir, seconds)
    return best_score(config, torch.load(best, map_location="cpu", weights_only=True))


def best_score(config: dict[str, Any], stored: dict[str, Any]) -> float:
    """The best value of the monitored metric, from a checkpoint: processes that DDP spawned take the state of their
    callbacks with them."""
    states = stored["callbacks"].values()
    return next(float(s["best_model_score"]) for s in states if s.get("monitor") == config["monitor"]["metric"])


def report(task: Task, config: dict[str, Any], best: str, data: Any, output_dir: Path, seconds: float) -> None:
    """Everything after the fit, in one process on one device and with the checkpoint `best`; prints the summary."""
    stored = torch.load(best, map_location="cpu", weights_only=True)
    module: Any = task.module.load_from_checkpoint(best, map_location="cpu", weights_only=True)
    trainable, _ = count_parameters(module.model)
    score = best_score(config, stored)
    results: dict[str, Any] = {config["monitor"]["metric"]: score}
    lines = {"best " + config["monitor"]["metric"]: f"{score:.4f}"}
    if config["test"]:
        options = {key: config["trainer"][key] for key in ("accelerator", "precision")}
        tester = pl.Trainer(devices=1, logger=False, enable_model_summary=False, enable_progress_bar=False, **options)
        results |= tester.test(module, data, verbose=False)[0]
    adapter_bytes = None
    if module.hparams["adapter"] is not None:
        folder = save_and_merge(module, output_dir / "adapter")
        lines["adapter"], adapter_bytes = str(folder), (folder / "adapter_model.safetensors").stat().st_size
    lines["weights"] = task.export(module, data, output_dir / "weights")
    if config["test"]:
        measured, shown = task.measure(module, data, results, output_dir)
        results |= measured
        lines |= shown
    content = {
        "results": results,
        "seed": config["seed"],
        "model": config["model"]["name"],
        "parameters": sum(p.numel() for p in module.model.parameters()),
        "trainable": trainable,
        "adapter_bytes": adapter_bytes,
        "flops": task.count_flops(module, data),
        "data": config["data"]["name"],
        "best_epoch": stored["epoch"] + 1,
        "best_step": stored["global_step"],
        "fit_seconds": round(seconds, 1),
        "commit": git_commit(),
        "machine": machine(),
        # Without the folder, so that the file can be kept and compared anywhere.
        "config": json.loads(json.dumps(config).replace(str(output_dir), ".")),
    }
    lines["checkpoint"] = best
    lines["results"] = str(write_json(output_dir / "results.json", content))
    width = max(map(len, lines))
    print("\n".join(f"{name:<{width}}  {value}" for name, value in lines.items()))
