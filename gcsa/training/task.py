"""What a run asks of a kind of work; each package of `gcsa.tasks` has a `Task` in its task.py."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytorch_lightning as pl

from gcsa._utils.errors import UserError
from gcsa._utils.options import Options

Data = TypeVar("Data")


def data_options(cfg: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a data module in `cfg`: those of `cfg["data"]` and the seed.

    Raises UserError for a model that is of another task; one that names none is of any.
    """
    model, data, task = cfg["model"], cfg["data"], cfg["task"]["name"]
    if isinstance(model, dict) and model.get("task", task) != task:
        raise UserError(
            f"model={model['name']} is for {model['task']}, and data={data['name']} for {task}: choose data for "
            f"{model['task']}, or another model",
            "model.task",
        )
    return {"seed": cfg["seed"], **data}


def model_options(cfg: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a network in `cfg["model"]`, without the name of the task."""
    return {key: value for key, value in cfg["model"].items() if key != "task"}


def task_options(cfg: dict[str, Any]) -> dict[str, Any]:
    """The options of the task in `cfg["task"]`, without its name."""
    return {key: value for key, value in cfg["task"].items() if key != "name"}


def make_data(kind: Callable[..., Data], options: dict[str, Any]) -> Data:
    """The data module `kind` with these arguments, `name` among them. Raises UserError for options that it refuses."""
    name = options.pop("name")
    try:
        return kind(**options)
    except TypeError as error:
        raise UserError(f"data={name} does not take these options: {error}", "data.options") from error


class Task(Protocol):
    """One kind of work. `cfg` is conf/train.yaml as plain values; `data` and `module` are what the task built."""

    @property
    def module(self) -> type[pl.LightningModule]:
        """The class that trains; the network of an instance is its `model`."""

    @property
    def options(self) -> type[Options]:
        """What conf/task/<task>.yaml holds besides the task's `name`; another key, and an impossible value, is refused."""

    @property
    def monitored(self) -> Mapping[str, str]:
        """The validation metrics that can choose the best epoch, each with its mode: "max" where more is better, or "min"."""

    def build_data(self, cfg: dict[str, Any]) -> Any:
        """The data module of `cfg["data"]`, which has read nothing yet. Raises ValueError for options it refuses."""

    def build_module(self, cfg: dict[str, Any], data: Any) -> Any:
        """The LightningModule of `cfg`, sized for `data`. Raises ValueError for arguments that cannot work."""

    def export(self, module: Any, data: Any, folder: Path) -> str:
        """Writes the weights into `folder`; returns how they are named to gcsa evaluate, gcsa transcribe and timm."""

    def evaluate(self, config: dict[str, Any], output_dir: Path) -> dict[str, Any]:
        """What gcsa evaluate measures: `config` is conf/evaluate.yaml as plain values. Prints a table, writes figures into
        `output_dir` where it draws some, and returns JSON-ready values. Raises as `build_data`, and for models."""

    def count_flops(self, module: Any, data: Any) -> int:
        """Floating-point operations of one image, or of one line."""

    def measure(
        self, module: Any, data: Any, scores: dict[str, float], output_dir: Path
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """What the best model reaches beyond the `scores` of the test loop, and lines for the screen."""
