"""One training run, from a configuration to checkpoints, exported weights and results.json."""

import logging
import re
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import psutil
import pytorch_lightning as pl
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.callbacks import LearningRateMonitor, ModelCheckpoint, ProgressBar, Timer
from pytorch_lightning.utilities.exceptions import MisconfigurationException
from torch import Tensor

from gcsa._utils.atomic import remove_leftovers, write_json
from gcsa._utils.errors import UserError, one_line, reworded
from gcsa._utils.threads import choose_threads
from gcsa.training.adapt import adapt, average_with_base, averageable, count_parameters, save_and_merge
from gcsa.training.callbacks import Freeze, StepSeed, StopOnNaN, TimeLimit, ValidateLastEpoch, trained_seconds
from gcsa.training.checkpoint_io import (
    AtomicCheckpointIO,
    LastCheckpoint,
    RunConfig,
    check_same_run,
    copy_best_checkpoints,
)
from gcsa.training.checks import check_config, resolve_checkpoint
from gcsa.training.distributed import leave_group
from gcsa.training.interruption import Signals, first_process, interruptible, only_run_in, requeued_checkpoint
from gcsa.training.results import git_commit, machine
from gcsa.training.task import Task
from gcsa.weights import annotate, read_checkpoint


def quiet_lightning() -> None:
    """Leaves out Lightning's advertisements and warnings that ask nothing of the user.

    Where the package `lightning` is imported as well (lightly-train does so), this one speaks through its logger.
    """
    for name in ("pytorch_lightning", "lightning_fabric", "lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("pytorch_lightning.profilers").setLevel(logging.INFO)  # the table of trainer.profiler=simple
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
        raise UserError(
            f"model={name} cannot checkpoint activations: leave checkpoint_activations=false", "checkpoint_activations"
        ) from error


def build_trainer(
    cfg: DictConfig, output_dir: Path, signals: Signals | None = None, further: Sequence[pl.Callback] = ()
) -> pl.Trainer:
    """The Lightning trainer with its callbacks, and `further` ones, and loggers; stops on `signals`, writes nothing yet."""
    loggers = [instantiate(node) for node in cfg.logger.values() if node is not None]
    # An experiment may set an option of a callback, such as ema.decay, that callbacks=no_ema then leaves out.
    callbacks = [instantiate(node) for node in cfg.callbacks.values() if node is not None and "_target_" in node]
    callbacks += [StepSeed(cfg.seed), StopOnNaN(cfg.trainer.log_every_n_steps), RunConfig(recorded(cfg))]
    callbacks += [ValidateLastEpoch(), *further]
    callbacks.append(Timer(verbose=False) if cfg.trainer.max_time is None else TimeLimit(cfg.trainer.max_time))
    for callback in callbacks:
        if isinstance(callback, LastCheckpoint):
            callback.signals = signals
    if not loggers:  # the learning rate then has nowhere to go, which Lightning would refuse
        callbacks = [callback for callback in callbacks if not isinstance(callback, LearningRateMonitor)]
    if not cfg.trainer.enable_progress_bar:  # Lightning would refuse the bar that conf/callbacks asks for
        callbacks = [callback for callback in callbacks if not isinstance(callback, ProgressBar)]
    return instantiate(
        cfg.trainer,
        max_time=None,  # TimeLimit's, not Lightning's, which the schedule could not see
        callbacks=callbacks,
        logger=loggers or False,
        plugins=[AtomicCheckpointIO()],
        default_root_dir=str(output_dir),
    )


def plain(cfg: DictConfig, output_dir: str) -> dict[str, Any]:
    """`cfg` with `output_dir`, resolved to plain values. Raises a ValueError of OmegaConf for a value that is missing."""
    cfg = cfg.copy()
    cfg.output_dir = output_dir
    return OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)  # type: ignore[return-value]


def recorded(cfg: DictConfig) -> dict[str, Any]:
    """`cfg` as it is kept: without its folder, so that it can be compared anywhere."""
    return plain(cfg, ".")


def no_validation(cfg: Any) -> bool:
    """Whether the validation split is trained on."""
    return bool(cfg["data"].get("train_on_val"))


def best_checkpoint(trainer: pl.Trainer) -> ModelCheckpoint:
    """The callback that keeps the best epoch. Raises ValueError where the configuration has none."""
    first = trainer.checkpoint_callback
    if not isinstance(first, ModelCheckpoint) or first.monitor is None:
        raise UserError(
            "the first checkpoint callback must have a monitor: keep callbacks.best", "callbacks.no_monitor"
        )
    return first


def train(task: Task, cfg: DictConfig, output_dir: Path) -> float:
    """Fits, exports the best checkpoint, tests it once (if `test`) and writes results.json into `output_dir`.

    With `data.train_on_val` the last validated step is the best, the number of its epoch, which is the same for all runs of
    one length, is the value, and no validation is reported.
    Returns the best value of the monitored validation metric, for sweeps. Raises ValueError or FileNotFoundError for a
    configuration or a test set that cannot work, before anything is trained, NotFiniteError when a loss or a weight
    is not finite, OSError where it cannot write, and Interrupted on a signal.
    """
    cfg = cfg.copy()
    cfg.output_dir = str(output_dir)  # of this run, also in a sweep
    quiet_lightning()
    check_config(plain(cfg, cfg.output_dir), task)
    if no_validation(cfg):  # a split that is trained on chooses nothing: what is validated last is the best
        cfg.monitor = {"metric": "step", "mode": "max"}
    config = plain(cfg, cfg.output_dir)
    with interruptible(output_dir) as signals, only_run_in(output_dir):
        for folder in (output_dir, output_dir / "checkpoints") if first_process() else ():
            remove_leftovers(folder)
        try:
            return fit_and_report(task, cfg, config, output_dir, signals)
        except MisconfigurationException as error:  # Lightning's, of options that do not go together
            raise UserError(one_line(error, limit=None), "training.failed") from error
        except (MemoryError, RuntimeError) as error:
            if not (words := out_of_memory(error)):
                raise
            raise UserError(
                f"{words}: lower data.batch_size={cfg.data.batch_size}, with trainer.accumulate_grad_batches as much higher, set "
                "checkpoint_activations=true, or take a trainer of more devices",
                "training.memory",
            ) from error


def out_of_memory(error: BaseException) -> str:
    """That memory is lacking, and how much, in words; nothing for another error."""
    message = str(error)
    if not isinstance(error, MemoryError | torch.OutOfMemoryError) and "DefaultCPUAllocator" not in message:
        return ""
    if found := re.search(r"allocate ([\d.]+) ?(bytes|KiB|MiB|GiB)", message):
        size = float(found[1]) * {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[found[2]]
        used = torch.cuda.max_memory_allocated() if "CUDA" in message else psutil.Process().memory_info().rss
        return f"not enough memory: training needs about {(used + size) / 1e9:.1f} GB and more"
    return "not enough memory"


def fit_and_report(task: Task, cfg: DictConfig, config: dict[str, Any], output_dir: Path, signals: Signals) -> float:
    """`train` without what surrounds it: the folder is this run's own, and signals are handled."""
    torch.set_num_threads(choose_threads(cfg.threads))
    torch.set_float32_matmul_precision(cfg.matmul_precision)
    pl.seed_everything(cfg.seed, verbose=False)
    data = task.build_data(config)
    module = task.build_module(config, data)
    if config["checkpoint_activations"]:
        checkpoint_activations(module.model, config["model"]["name"])
    base: dict[str, Tensor] = {}
    if config.get("adapter") is not None:
        if first_process():  # what is wrong with the data is told before the base is read
            data.prepare_data()
        adapt(module, config["adapter"])
        if config["adapter"].get("base_share"):
            base = {name: tensor.detach().clone() for name, tensor in averageable(module.model).items()}
    freeze = Freeze(module.model, config["freeze"])
    trainer = build_trainer(cfg, output_dir, signals, [freeze])
    best_checkpoint(trainer)
    asked = requeued_checkpoint(output_dir) or config["ckpt_path"]
    ckpt_path = resolve_checkpoint(asked, output_dir / "checkpoints", module)
    if ckpt_path is not None:
        check_same_run(ckpt_path, recorded(cfg), {f"task.{f.name}": f.default for f in fields(task.options)})
    if first_process():
        data.prepare_data()
        if config["test"]:
            data.check_test()
    if trainer.world_size == 1:  # before the loggers make their folders, so that refused data leave none
        data.setup("fit")

    if ckpt_path is not None:
        ckpt_path = copy_best_checkpoints(ckpt_path, output_dir / "checkpoints")
    started = time.monotonic()
    signals.trainer = trainer
    trainer.fit(module, data, ckpt_path=ckpt_path, weights_only=True)
    # Spawned processes keep their clocks, which also count what came before a resume, to themselves.
    seconds = max(time.monotonic() - started, trained_seconds(trainer))
    best = best_checkpoint(trainer).best_model_path
    if not best:
        raise UserError(
            f"the run ended before its first validation, so no epoch is the best: train on from {output_dir}/checkpoints"
            "/last.ckpt with ckpt_path=last, for longer",
            "training.no_validation",
        )
    if leave_group(trainer):
        return report(task, recorded(cfg), best, data, output_dir, seconds, base)
    return best_score(config, read_checkpoint(Path(best)))


def best_score(config: dict[str, Any], stored: dict[str, Any]) -> float:
    """The best value of the monitored metric, from a checkpoint: processes that DDP spawned take the state of their
    callbacks with them. Without a validation, the number of the epoch: by that of the step a sweep would choose."""
    if no_validation(config):
        return float(stored["epoch"])
    states = stored["callbacks"].values()
    return next(float(s["best_model_score"]) for s in states if s.get("monitor") == config["monitor"]["metric"])


def report(
    task: Task,
    config: dict[str, Any],
    best: str,
    data: Any,
    output_dir: Path,
    seconds: float,
    base: Mapping[str, Tensor],
) -> float:
    """Everything after the fit, in one process on one device and with the checkpoint `best`; prints the summary, and returns the best
    value of the monitored metric.

    base: of `average_with_base`, where adapter.base_share asks for it: the checkpoint holds the trained weights, and what is validated
    anew, exported and tested is the average.

    The weights are written before the test set is read, so that a test set that cannot be read costs no weights.
    """
    stored = read_checkpoint(Path(best))
    module: Any = task.module.load_from_checkpoint(best, map_location="cpu", weights_only=True)
    Freeze(module.model, config["freeze"])
    trainable, _ = count_parameters(module.model)
    score = best_score(config, stored)
    if base:
        average_with_base(module.model, base, config["adapter"]["base_share"])
        if not no_validation(config):
            scores = evaluating(config, "limit_val_batches").validate(module, data, verbose=False)[0]
            score = float(scores[config["monitor"]["metric"]])
            module.float()  # as in `test`
    validated = {} if no_validation(config) else {config["monitor"]["metric"]: score}
    lines = {f"best {metric}": f"{value:.4f}" for metric, value in validated.items()}
    adapter_bytes = None
    if module.hparams["adapter"] is not None:
        folder = save_and_merge(module, output_dir / "adapter")
        lines["adapter"], adapter_bytes = str(folder), (folder / "adapter_model.safetensors").stat().st_size
    lines["weights"] = task.export(module, data, output_dir / "weights")
    results: dict[str, Any] = dict(validated)
    if config["test"]:
        try:
            measured, shown = test(task, config, module, data, output_dir)
        except (UserError, OSError) as error:
            raise reworded(error, f"{error} (the weights are written: {lines['weights']})", "training.test") from error
        results |= measured
        lines |= shown
    annotate(output_dir / "weights", results=results)
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
        "config": config,
    }
    lines["checkpoint"] = best
    lines["results"] = str(write_json(output_dir / "results.json", content))
    width = max(map(len, lines))
    print("\n".join(f"{name:<{width}}  {value}" for name, value in lines.items()))
    return score


def evaluating(config: dict[str, Any], limit: str) -> pl.Trainer:
    """A trainer that measures on one device, and shows nothing; limit: the option of `trainer` for the batches of the split."""
    options = {key: config["trainer"][key] for key in ("accelerator", "precision", limit) if key in config["trainer"]}
    return pl.Trainer(devices=1, logger=False, enable_model_summary=False, enable_progress_bar=False, **options)


def test(
    task: Task, config: dict[str, Any], module: Any, data: Any, output_dir: Path
) -> tuple[dict[str, Any], dict[str, str]]:
    """What the model reaches on the test set, which is read here only, and lines for the screen."""
    scores = evaluating(config, "limit_test_batches").test(module, data, verbose=False)[0]
    module.float()  # what trainer.precision=64-true or bf16-true made of it; what follows feeds it float32
    measured, shown = task.measure(module, data, dict(scores), output_dir)
    return {**scores, **measured}, shown
