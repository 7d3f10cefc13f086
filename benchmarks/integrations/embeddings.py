"""Embeddings of 400 patches at four turns through other people's frameworks, by our files and by their own way:
`python -m benchmarks.integrations.embeddings lightly_train torchgeo smp trident`.

Writes benchmarks/results/integrations/FRAMEWORK.json. The weights are gcsa_pooled_small.pcam; where it says "regular fields",
a gcsa_small with random weights, norms and biases (seed 0). TIAToolbox asks for NumPy 2, which escnn does not take, so it runs in
an environment without escnn, for which the tables of kernels must lie in the cache:

    uv venv ENV && uv pip install --python ENV/bin/python "tiatoolbox>=2.1" pytorch-lightning torchmetrics hydra-core h5py
    ENV/bin/python -m benchmarks.integrations.embeddings tiatoolbox

TRIDENT is in no registry. Its `CustomInferenceEncoder` is stood in for by what its documentation says that it does: the transforms
on a PIL image, then the model on the batch, under autocast unless the precision is float32.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from PIL import Image
from torch import Tensor, nn

from benchmarks.common import arguments, keep
from benchmarks.integrations.patches import PATCHES, RESULTS, Features, largest_changes, patches
from gcsa._utils.arrays import Array
from gcsa.tasks import load
from gcsa.testing import randomize

WEIGHTS = "gcsa_pooled_small.pcam"
NAME = WEIGHTS.partition(".")[0]
REGULAR = "gcsa_small"
Sides = dict[str, Features]


def batched(run: Callable[[Tensor], Tensor], ready: Callable[[Any], Tensor]) -> Features:
    """`run` on batches of pictures, each made `ready` from its pixels."""

    def features(pictures: Array) -> Array:
        with torch.inference_mode():
            batches = np.array_split(pictures, max(len(pictures) // 20, 1))
            return np.concatenate([run(torch.stack([ready(x) for x in b])).flatten(1).float().numpy() for b in batches])

    return features


def regular() -> nn.Module:
    """A model whose features are regular fields, with random weights."""
    torch.manual_seed(0)
    return randomize(timm.create_model(REGULAR, num_classes=2)).eval()


def lightly_train() -> Sides:
    """Its own way is by the name of a model in timm."""
    from lightly_train._models.embedding_model import EmbeddingModel
    from lightly_train._models.package_helpers import get_package, get_wrapped_model

    from gcsa.integrations.lightly_train import LightlyModel

    prepare = load(WEIGHTS).preprocess
    own = get_package("timm").get_model_wrapper
    models = {"ours": load(WEIGHTS).network, "ours, regular fields": regular()}
    sides = {name: get_wrapped_model(LightlyModel(model), 3) for name, model in models.items()}
    sides["default"] = own(load(WEIGHTS).network)
    sides["default, regular fields"] = own(regular())
    return {name: batched(EmbeddingModel(wrapped).eval(), prepare) for name, wrapped in sides.items()}


def torchgeo() -> Sides:
    """As it is: SimCLR's backbone is right for scalar fields; BYOL listens to the last layer but one, a map."""
    from torchgeo.trainers import ClassificationTask, SimCLRTask
    from torchgeo.trainers.byol import BYOL

    prepare = load(WEIGHTS).preprocess
    classifier = ClassificationTask(model=NAME, weights=True, in_channels=3, num_classes=2).eval().model
    simclr = SimCLRTask(model=NAME, weights=True, in_channels=3, size=96).eval()
    byol = BYOL(load(WEIGHTS).network, in_channels=3, image_size=(96, 96)).eval().backbone
    runs: dict[str, Callable[[Tensor], Tensor]] = {
        "ours, classification": lambda x: classifier.forward_head(classifier.forward_features(x), pre_logits=True),
        "ours, SimCLR": lambda x: simclr(x)[1],
        "default, BYOL": lambda x: (byol(x), byol._embedding)[1],
    }
    return {name: batched(run, prepare) for name, run in runs.items()}


def smp() -> Sides:
    """Means over positions of the coarsest maps of an encoder with random weights, for none are published."""
    import segmentation_models_pytorch

    prepare = load(WEIGHTS).preprocess
    sides = {}
    for name, options in {"ours": {"feature_maps": "invariant"}, "default": {}}.items():
        torch.manual_seed(0)
        network = segmentation_models_pytorch.Segformer(
            "tu-gcsa_pyramid_tiny", encoder_weights=None, classes=2, **options
        )
        encoder = randomize(network).eval().encoder
        sides[name] = batched(lambda x, encoder=encoder: encoder(x)[-1].mean((2, 3)), prepare)
    return sides


class StandIn(nn.Module):
    """What TRIDENT's `CustomInferenceEncoder` is documented to be."""

    def __init__(self, enc_name: str, model: nn.Module, transforms: Callable[..., Any], precision: torch.dtype) -> None:
        super().__init__()
        self.enc_name, self.model, self.eval_transforms, self.precision = enc_name, model, transforms, precision

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", self.precision, enabled=self.precision != torch.float32):
            return self.model(x)


def trident() -> Sides:
    """On the central 80 x 80 pixels, so that patches are resized as slides' are. Its own way is timm's transform, by Pillow."""
    from gcsa.integrations.trident import encoder

    model, prepare, precision = encoder(WEIGHTS)
    plain = timm.create_model(WEIGHTS, pretrained=True, num_classes=0).eval()
    transform = timm.data.create_transform(**timm.data.resolve_data_config(plain.pretrained_cfg))
    encoders = {
        "ours": StandIn("gcsa", model, prepare, precision),
        "ours, bfloat16": StandIn("gcsa", model, prepare, torch.bfloat16),
        "default": StandIn("timm", plain, transform, torch.float32),
    }

    def ready(encoder: StandIn) -> Callable[[Array], Tensor]:
        return lambda pixels: encoder.eval_transforms(Image.fromarray(pixels[8:-8, 8:-8]))

    return {name: batched(encoder, ready(encoder)) for name, encoder in encoders.items()}


def tiatoolbox() -> Sides:
    """Both through its engine. Its own way takes a name in timm, and knows no normalisation."""
    import zarr
    from tiatoolbox.models.architecture.vanilla import TimmBackbone
    from tiatoolbox.models.engine.deep_feature_extractor import DeepFeatureExtractor
    from tiatoolbox.models.engine.io_config import IOPatchPredictorConfig

    from gcsa.integrations.tiatoolbox import TIAToolboxModel

    config = IOPatchPredictorConfig(
        patch_input_shape=(96, 96), input_resolutions=[{"units": "baseline", "resolution": 1.0}]
    )

    def embedded(model: Any) -> Features:
        def features(pictures: Array) -> Array:
            with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
                extractor = DeepFeatureExtractor(model, batch_size=20, verbose=False)
                kept = extractor.run(
                    pictures, patch_mode=True, ioconfig=config, output_type="zarr", save_dir=Path(folder) / "out"
                )
                stored = np.asarray(zarr.open(str(kept), mode="r")["features"])
            return stored.reshape(len(pictures), -1)  # from (batches, images of a batch, numbers)

        return features

    return {
        "ours": embedded(TIAToolboxModel(WEIGHTS)),
        "default": embedded(TimmBackbone(NAME, pretrained=True)),
    }


FRAMEWORKS: dict[str, tuple[Callable[[], Sides], str]] = {
    "lightly_train": (lightly_train, "lightly-train"),
    "torchgeo": (torchgeo, "torchgeo"),
    "smp": (smp, "segmentation-models-pytorch"),
    "trident": (trident, ""),
    "tiatoolbox": (tiatoolbox, "tiatoolbox"),
}


def main() -> None:
    args = arguments(
        __doc__,
        lambda parser: (
            parser.add_argument("frameworks", nargs="+", choices=list(FRAMEWORKS)),
            parser.add_argument("--patches", type=int, default=PATCHES),
        ),
    )
    pictures = patches(args.patches)
    for name in args.frameworks:
        sides, package = FRAMEWORKS[name]
        content: dict[str, Any] = {"version": version(package) if package else "contract as documented"}
        content |= {"weights": WEIGHTS, "patches": len(pictures), "seed": 0}
        for side, features in sides().items():
            content[side] = largest_changes(features, pictures, mirrors=False)
            print(name, side, content[side], flush=True)
        keep(RESULTS / f"{name}.json", content)


if __name__ == "__main__":
    main()
