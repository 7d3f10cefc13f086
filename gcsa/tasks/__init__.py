"""The kinds of work, a package each: `task.name` of a configuration names it, and a weights file says it too.

A task is a package here, or one that `register_task` names. It has two files that are found by name: `predict.py`, with
`make_predictor(weights)`, which needs nothing of training; and `task.py`, with the class `Task` (`gcsa.training.task`), for
training and evaluation. A fourth task is one folder, one file of conf/task and one of conf/data.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from gcsa._utils.errors import UserError
from gcsa._utils.plugins import load_plugins
from gcsa._utils.published import ADAPTER_CONFIG, published

if TYPE_CHECKING:  # the commands import what a package lets them choose, and no torch
    from gcsa.tasks.base import Predictor
    from gcsa.training.task import Task
    from gcsa.weights import Weights

_PACKAGES: dict[str, str] = {
    package.name: f"{__name__}.{package.name}"
    for package in iter_modules(__path__)
    if (Path(__path__[0]) / package.name / "task.py").is_file()
}


def register_task(name: str, package: str) -> None:
    """Makes the package of the dotted name `package` that of the task `name`."""
    _PACKAGES[name] = package


def list_tasks() -> list[str]:
    """The names of the tasks, in the order of the alphabet."""
    return sorted(_PACKAGES)


def get_task(name: object) -> Task:
    """The task of this name, for training and evaluation. Raises ValueError for an unknown one."""
    return import_module(f"{_package(name)}.task").Task()


def load(
    source: str | Path,
    adapter: str | Path | None = None,
    task: str | None = None,
    outputs: str | None = None,
    trust_code: bool = False,
) -> Predictor:
    """The trained network in `source` with its preprocessing and postprocessing, in eval mode on the CPU.

    Args:
        source: the name of published weights or of a published adapter, which is BASE.NAME; a folder of weights, a .ckpt of train.py, or
            `hf-hub:OWNER/NAME`. Or a network of others: `timm:NAME`, a file .onnx, .pt, .pth, .ts or .pt2, or `MODULE:FUNCTION`
            (`gcsa.tasks.networks.open_foreign`).
        adapter: a folder of an adapter on these weights, or the name of a published one; it is merged.
        task: the only task that is accepted; None for any. A segmenter of others is one where "segmentation" is asked for.
        outputs: what the maps of such a segmenter are (`gcsa.tasks.segmentation.choices.OUTPUTS`).
        trust_code: whether a file .pt, .pth, .ts or .pt2 and a function may run the code that they hold, which weights of gcsa, timm's and ONNX never do.

    Raises:
        FileNotFoundError: a missing file.
        ValueError: a damaged file, weights with an entry out of its range or of another task, an adapter of another base.
    """
    from gcsa.models.foreign import is_foreign
    from gcsa.tasks.networks import open_foreign
    from gcsa.weights import read

    folder = published(str(source))
    if folder is None and is_foreign(str(source)):
        if adapter is not None:
            raise UserError(f"an adapter is for weights of gcsa, and {source} is none", "adapter.foreign")
        return open_foreign(str(source), task, outputs, trust_code)
    if outputs is not None:
        raise UserError(
            f"--outputs is for segmenters of others, and {source} says its own: leave it out", "outputs.not_segmenter"
        )
    if adapter is None and folder is not None and (folder / ADAPTER_CONFIG).is_file():
        source, adapter = str(source).rpartition(".")[0], source
    return make_predictor(read(source), adapter, task)


def make_predictor(weights: Weights, adapter: str | Path | None = None, task: str | None = None) -> Predictor:
    """`load` for weights that were read already."""
    load_plugins()
    package = _package(weights.task)
    if task not in (None, weights.task):
        raise UserError(f"{weights.source} holds weights for {weights.task}: name weights for {task}", "weights.task")
    predictor: Predictor = import_module(f"{package}.predict").make_predictor(weights, adapter)
    return predictor


def _package(name: object) -> str:
    if not isinstance(name, str) or name not in _PACKAGES:
        raise UserError(f"unknown task {str(name)[:60]!r}: choose one of {', '.join(list_tasks())}", "task")
    return _PACKAGES[name]
