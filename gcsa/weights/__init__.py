"""The one door for weights: checkpoints of train.py, folders of weights, and adapters are read and written here alone.

Weights are data (design section 7). What a file may say is a closed list, each entry with its type and range: the name of
a registered model, options of `gcsa.models.create`, characters, classes, normalisation and numbers. It may not choose
code, an address, or a path. Names, shapes and dtypes of the tensors are compared with the model on the meta device,
which allocates nothing, before the model is made.

A folder of weights holds config.json and model.safetensors. That of a classifier is as timm's `save_for_hf` writes it, so
that `timm.create_model("local-dir:FOLDER", pretrained=True)` opens it too; timm trusts what stands in it, this module does not.
"""

from gcsa.weights.adapter import Adapter, read_adapter
from gcsa.weights.build import fill, load_tensors
from gcsa.weights.files import read_checkpoint
from gcsa.weights.schema import Weights, check_weights, read
from gcsa.weights.tensors import check_finite, check_tensors
from gcsa.weights.writer import annotate, recognizer_config, save_classifier, save_recognizer, save_segmenter

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
    "recognizer_config",
    "save_classifier",
    "save_recognizer",
    "save_segmenter",
]
