"""Tensors into models: compared on the meta device first, so that no file decides how much memory is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from gcsa._utils.errors import UserError, one_line
from gcsa.models.create import create_model
from gcsa.weights.files import BORDER
from gcsa.weights.schema import Weights, read
from gcsa.weights.tensors import check_tensors

Model = TypeVar("Model", bound=nn.Module)


def load_classifier(source: str | Path) -> nn.Module:
    """The classifier of images in `source`, in eval mode, with timm's `pretrained_cfg` telling the normalisation.

    Raises what `read` does, and ValueError for weights of text recognition, of segmentation, or of another architecture than
    they name.
    """
    return make_classifier(read(source))


def make_classifier(weights: Weights) -> nn.Module:
    """The classifier that `weights`, as read, describe; see `load_classifier`. Raises ValueError for those of something else."""
    if weights.kind != "classifier":
        does = (
            "reads text lines: give it to transcribe.py"
            if weights.kind == "recognizer"
            else "segments: give it to segment.py"
        )
        raise UserError(f"{weights.source} {does}, or name a classifier of images")
    model = fill(lambda: create_model(weights.architecture, **weights.options), weights)
    preprocessing = dict(weights.preprocessing)
    if preprocessing.pop("pad", None):
        preprocessing |= BORDER
    vars(model)["pretrained_cfg"] = {**vars(model).get("pretrained_cfg", {}), **preprocessing}
    return model


def fill(create: Callable[[], Model], weights: Weights) -> Model:
    """`create()` with the tensors of `weights`, in eval mode.

    Raises ValueError for tensors that are not those of the model, which is told on the meta device, before any memory
    is asked for.
    """
    try:
        with torch.device("meta"):
            wanted = create().state_dict()
    except NotImplementedError as error:  # a model that computes with numbers as it is made
        raise UserError(f"{weights.source}: {weights.architecture} cannot be read back ({one_line(error)})") from error
    except (RuntimeError, MemoryError, OverflowError) as error:  # sizes that multiply to more than there is
        raise UserError(f"{weights.source} describes no model that can be made ({one_line(error)})") from error
    check_tensors(weights.source, weights.tensors, wanted)
    model = create()
    load_tensors(model, weights.tensors, weights.source)
    return model.eval()


def load_tensors(model: nn.Module, tensors: Mapping[str, Tensor], source: str | Path, strict: bool = True) -> None:
    """`model.load_state_dict`, of which errors, such as another kernel basis, become a ValueError naming `source`."""
    try:
        model.load_state_dict(tensors, strict=strict)
    except (RuntimeError, ValueError) as error:
        raise UserError(f"{source} does not fit the model that it names: {one_line(error)}") from error
