"""Weights that timm's authors or others trained, for a run to start from: `model.pretrained=true`, or `=FILE`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import timm
from torch import nn

from gcsa._utils.errors import UserError, one_line
from gcsa._utils.validation import shown
from gcsa.models.create import SYMMETRY, check_name, classifier_names
from gcsa.symmetry import Symmetrized
from gcsa.weights.fingerprint import is_within


def check_pretrained(source: Any) -> None:
    """Raises UserError for anything but a truth value or a path, and FileNotFoundError for a file that is not there."""
    if not isinstance(source, bool | str):
        raise UserError(f"model.pretrained={shown(source)} must be true, false, or a file of weights", "pretrained")
    if isinstance(source, str) and not Path(source).is_file():
        raise FileNotFoundError(f"there is no {source}: model.pretrained takes true, false, or a file of weights")


def normalisation_of(name: str) -> dict[str, Any]:
    """The mean and standard deviation that the pretrained weights of timm's model `name` expect."""
    known = timm.get_pretrained_cfg(check_name(name))
    return {} if known is None else {"mean": known.mean, "std": known.std}


def load_pretrained(network: nn.Module, options: Mapping[str, Any], source: bool | str) -> None:
    """Loads pretrained weights into `network`, made from `options`: its name, num_classes and in_chans among them.

    A classifier of another number of classes stays new, and the first layer is made for `in_chans`, as timm does both.

    source: True fetches those of timm's model from its hub; a str is a file of them, .safetensors or .pth, which is read
        without running code. Raises UserError, in one sentence, where they cannot be had or do not fit.
    """
    check_pretrained(source)
    options = {key: value for key, value in options.items() if key not in SYMMETRY}
    if isinstance(network, Symmetrized):
        network = network.network
    name = options.pop("name")
    overlay: dict[str, Any] | None = None
    try:
        if isinstance(source, str):
            stored = timm.models.load_state_dict(source)
            _check_names(network, stored)
            overlay = {"file": source, "custom_load": False, "label_offset": 0, **_classes(network, stored)}
        trained = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay, **options)
    except Exception as error:  # of timm, torch, the hub's client or the network
        where = f"the pretrained weights of {name}" if source is True else str(source)
        advice = "name a file by model.pretrained=FILE" if source is True else "name weights of this model"
        raise UserError(
            f"model.pretrained: {where} cannot be loaded: {one_line(error)}: {advice}", "pretrained.file"
        ) from error
    network.load_state_dict(trained.state_dict())


def _check_names(network: nn.Module, stored: Mapping[str, Any]) -> None:
    """Raises UserError for tensors of another network, of which timm loads what it can, and says nothing."""
    classifiers = classifier_names(network)
    for name in network.state_dict():
        if name not in stored and not is_within(name, classifiers) and not name.endswith("num_batches_tracked"):
            raise UserError(f"it has no {name}", "pretrained.tensor")


def _classes(network: nn.Module, stored: Mapping[str, Any]) -> dict[str, int]:
    """What the file's classifier tells apart: timm supposes the number of its own weights, and drops any other classifier."""
    rows = [len(stored[key]) for name in classifier_names(network) if (key := f"{name}.weight") in stored]
    return {"num_classes": rows[0]} if rows else {}
