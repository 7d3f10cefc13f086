"""The `Predictor` that `gcsa.load` returns; `gcsa.training.task` says what train.py and gcsa evaluate ask of a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from torch import nn

from gcsa._utils.errors import UserError
from gcsa._utils.importing import check_peft
from gcsa.evaluation.audited import Audited, AuditOptions, Progress, silent
from gcsa.groups import Group, group as make_group
from gcsa.models.folding import fold
from gcsa.tasks.ood import OODScorer

P = TypeVar("P", bound="Predictor")
Exporter = Callable[[str, Path], str]
"""Writes the weights of this source into a file or a folder, and says what came of it."""


class Predictor(ABC):
    """A trained network with its preprocessing and postprocessing.

    Validation, gcsa evaluate and the commands call the same `predict`.

    Attributes:
        kind: the name of the task.
        audit_kind: what `audit` compares of a task that sees whole images: "segmenter" or "reader"; "" of others.
        network: the module, in eval mode: for training, export and folding.
        preprocess: a function from an image to the input of `network`.
        ood_scorer: gives the OOD score of an image, where the weights say what those of training are like; else None.
    """

    kind: ClassVar[str]
    audit_kind: ClassVar[str] = ""
    network: Any
    preprocess: Any
    ood_scorer: OODScorer | None = None

    def __init__(self, network: nn.Module, preprocess: Any) -> None:
        self.network, self.preprocess = network.eval(), preprocess

    @property
    def group(self) -> Group:
        """The group of the network; c1 for a network without one."""
        return make_group(getattr(self.network, "group", "c1"))

    def to(self: P, device: Any) -> P:
        """Moves the network; returns this predictor."""
        self.network.to(device)
        return self

    def fold(self: P) -> P:
        """Folds the network, which is faster and can no longer be trained (`gcsa.models.folding`); returns this predictor."""
        self.network = fold(self.network)
        return self

    def describe(self) -> dict[str, Any]:
        """What a program needs that runs the network without gcsa, JSON-ready; it stands in the metadata of ONNX files."""
        return {"task": self.kind, "group": str(self.group)}

    @property
    def exporters(self) -> dict[str, Exporter]:
        """How trained weights are written in formats that are not of one network (`gcsa.export.FORMATS`), by their names."""
        return {"hub": _to_hub}

    @property
    def input_size(self) -> tuple[int, int, int]:
        """(C, H, W) of images that the network was made for."""
        return default_size(self.network)

    def exported(self) -> nn.Module:
        """The network as a file of its own has it, which runs without gcsa."""
        return self.network

    def audit(
        self,
        images: Sequence[Path],
        options: AuditOptions,
        network: nn.Module | None = None,
        progress: Progress = silent,
    ) -> Audited:
        """How the answers for `images` change when these rotate and reflect; of `network` where one is given, which is this one made exact.

        Raises UserError for a task that has no audit, and where no image can be read.
        """
        raise UserError(f"{options.name} is for {self.kind}, which has no audit", "audit.task", kind=self.kind)

    @abstractmethod
    def predict(self, images: Any) -> Any:
        """The results of the task for one image or for a list of images.

        images: a path, an array (H, W) or (H, W, C), a PIL image or a tensor (C, H, W); or a list of these, for a list of
        results. Raises ValueError for an image that cannot be read or does not fit, naming it.
        """


def default_size(network: Any) -> tuple[int, int, int]:
    """(C, H, W) of images, as timm's networks say it."""
    channels, height, width = network.pretrained_cfg["input_size"]
    return getattr(network, "in_chans", channels), height, width


def _to_hub(source: str, folder: Path) -> str:
    from gcsa.tasks.hub import write_hub

    write_hub(source, folder)
    size_mb = sum(part.stat().st_size for part in folder.iterdir()) / 1e6
    return f"{folder} (hub, {size_mb:.1f} MB) holds the same weights; its README.md says how they are loaded"


def merge_adapter(network: nn.Module, adapter: str | Path) -> Any:
    """`network` with the adapter in this folder, or of this published name, merged.

    Raises MissingExtraError without PEFT, and as `gcsa.adapters.load`.
    """
    check_peft()
    from gcsa.adapters import load

    return load(network, adapter).merge_and_unload().eval()
