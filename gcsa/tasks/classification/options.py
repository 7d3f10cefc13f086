"""The options of the training of classifiers, conf/task/classification.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from gcsa._utils.options import Options, Range, Rate, check_options
from gcsa.tasks.classification.teacher import TeacherOptions

NO_TEACHER = TeacherOptions()


@dataclass(frozen=True, kw_only=True)
class ClassificationOptions(Options):
    """What `Classifier` reads besides network, optimizer and data. Raises UserError for a value that cannot work."""

    label_smoothing: Annotated[Rate, "share of the target spread over all classes"] = 0.1
    loss: Annotated[
        str | None,
        "cross_entropy, bce (each class against the others), focal, mse, or one of your own; null: the usual one",
    ] = None
    class_weights: Annotated[
        list | str | None, "a number for each class, such as [1,4], or auto: every class counts as much"
    ] = None
    mixup: Annotated[
        Annotated[float, Range(0, 1000)], "alpha, such as 0.2; mixes pairs of training images and their targets"
    ] = 0.0
    cutmix: Annotated[
        Annotated[float, Range(0, 1000)], "alpha, such as 1.0; puts a rectangle of one training image into another"
    ] = 0.0
    consistency: Annotated[
        Annotated[float, Range(0, 1000)],
        "with data.views=2: weight of how unlike the answers for two views of an image are",
    ] = 0.0
    instance_loss: Annotated[
        Annotated[float, Range(0, 1000)],
        "with data.views=2: weight of telling an image from others by the features of its other view",
    ] = 0.0
    compile: Annotated[bool, "torch.compile the model, which is faster on a GPU, after a minute of compilation"] = False

    teacher: Annotated[
        TeacherOptions, "a trained network whose answers are learned, instead of the labels or beside them"
    ] = NO_TEACHER

    @classmethod
    def from_config(cls, options: Mapping[str, Any]) -> ClassificationOptions:
        """From plain values by name; None takes the default. Raises UserError for unknown names and impossible values."""
        known = check_options(options, cls, owner="task=classification")
        teacher = check_options(known.pop("teacher", {}), TeacherOptions, owner="task.teacher")
        return cls(**known, teacher=TeacherOptions(**teacher))

    @property
    def makes_encoder(self) -> bool:
        """Whether a teacher's features are learned, so that the network has no classes."""
        return bool(self.teacher.sources) and self.teacher.of == "features"

    @property
    def compares_views(self) -> bool:
        """Whether the loss compares two views of each image."""
        return bool(self.consistency or self.instance_loss)
