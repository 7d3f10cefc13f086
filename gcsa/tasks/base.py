"""The `Predictor` that `gcsa.load` gives; what train.py and evaluate.py ask of a task is in `gcsa.training.task`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from torch import nn

from gcsa.groups import Group, group as make_group


class Predictor(ABC):
    """A trained network with the preprocessing in front of it and the postprocessing behind it.

    What validation measures, what evaluate.py measures and what the commands write all come from `predict`.

    Attributes:
        kind: the name of the task.
        network: in eval mode; what trains, exports and is folded.
        preprocess: makes a picture ready for `network`.
        group: the network's group, c1 where it has none.
    """

    kind: ClassVar[str]
    network: nn.Module
    preprocess: Any

    def __init__(self, network: nn.Module, preprocess: Any) -> None:
        self.network, self.preprocess = network.eval(), preprocess

    @property
    def group(self) -> Group:
        return make_group(str(getattr(self.network, "group", "c1")))

    def to(self, device: Any) -> Predictor:
        """Moves the network; returns this predictor."""
        self.network.to(device)
        return self

    @abstractmethod
    def predict(self, images: Any, **options: Any) -> Any:
        """What the task says of one image or of several; the room tells what that is.

        images: a path, an array (H, W) or (H, W, C), a PIL image or a tensor (C, H, W); or a list of these, for a list of
        results. Raises ValueError for an image that cannot be read or does not fit, naming it.
        """
