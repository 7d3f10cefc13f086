"""What a run asks of a kind of work; each room of `gcsa.tasks` has a `Task` in its task.py."""

from pathlib import Path
from typing import Any, Protocol

import pytorch_lightning as pl


def data_options(cfg: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a data module in `cfg`: those of `cfg["data"]` and the seed, without the name of the task."""
    return {"seed": cfg["seed"]} | {key: value for key, value in cfg["data"].items() if key != "task"}


class Task(Protocol):
    """One kind of work. `cfg` is conf/train.yaml as plain values; `data` and `module` are what the task built."""

    @property
    def module(self) -> type[pl.LightningModule]:
        """The class that trains; the network of an instance is its `model`."""

    @property
    def monitored(self) -> tuple[str, ...]:
        """The validation metrics that can choose the best epoch."""

    def build_data(self, cfg: dict[str, Any]) -> Any:
        """The data module of `cfg["data"]`, which has read nothing yet. Raises ValueError for options it refuses."""

    def build_module(self, cfg: dict[str, Any], data: Any) -> Any:
        """The LightningModule of `cfg`, sized for `data`. Raises ValueError for arguments that cannot work."""

    def export(self, module: Any, data: Any, folder: Path) -> str:
        """Writes the weights into `folder`; returns how they are named to evaluate.py, transcribe.py and timm."""

    def evaluate(self, config: dict[str, Any], output_dir: Path) -> dict[str, Any]:
        """What evaluate.py measures: `config` is conf/evaluate.yaml as plain values. Prints a table, writes figures into
        `output_dir` where it draws some, and returns JSON-ready values. Raises as `build_data`, and for models."""

    def count_flops(self, module: Any, data: Any) -> int:
        """Floating-point operations of one image, or of one line."""

    def measure(
        self, module: Any, data: Any, scores: dict[str, float], output_dir: Path
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """What the best model reaches beyond the `scores` of the test loop, and lines for the screen."""
