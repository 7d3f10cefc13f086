"""Checkpoints of train.py, folders of weights and adapters: only this package reads and writes them.

Weights are data (design section 7). A file holds a closed list of entries, each with a type and a range: the name of a task
and of a registered network, options of that network, characters, classes, normalisation and numbers. It cannot choose code,
an address or a path. `fill` compares names, shapes and dtypes of the tensors with the network on the meta device, before any
memory is allocated.

A folder of weights holds config.json and model.safetensors. timm's `save_for_hf` writes the folder of a classifier, and
`timm.create_model("local-dir:FOLDER", pretrained=True)` opens it too; timm trusts its content, this package does not.
"""

from gcsa.weights.adapter import Adapter, read_adapter, save_label_names
from gcsa.weights.build import fill, load_tensors
from gcsa.weights.files import read_checkpoint
from gcsa.weights.schema import Weights, check_weights, read
from gcsa.weights.tensors import check_finite, check_tensors
from gcsa.weights.writer import (
    annotate,
    save_classifier,
    to_config,
    write,
)

__all__ = [
    "Adapter",
    "Weights",
    "annotate",
    "check_finite",
    "check_tensors",
    "check_weights",
    "fill",
    "load_tensors",
    "read",
    "read_adapter",
    "read_checkpoint",
    "save_classifier",
    "save_label_names",
    "to_config",
    "write",
]
