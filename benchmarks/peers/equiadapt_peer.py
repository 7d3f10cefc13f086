"""equiadapt (Mondal et al. 2023, arXiv:2310.01647), a chooser of poses that learns, beside the wrappers of gcsa, around one network.

    uv run --with equiadapt==0.1.2 python -m benchmarks.peers.equiadapt_peer outputs/my_run/checkpoints/best.ckpt c4

Validation patches of PatchCamelyon, of 96 pixels, and of 97, where the last row and column are repeated, rotate and reflect in front of
a trained classifier, which no wrapper changes. The choosers have random weights: exactness must not depend on them.

equiadapt is used by its own classes, with the options of its example for images (`group_equivariant.yaml`: c4, 3 layers of 128
channels, 5 x 5 filters, the middle 80 % of the image, resized to 96 pixels), and with the whole image as it is instead. Its own second
network, `CustomEquivariantNetwork`, lacks two attributes that its canonicalizer reads in 0.1.2; they are set here.
benchmarks/results/symmetry/equiadapt_GROUP.json holds the errors, and the cost in passes of the classifier.
"""

from __future__ import annotations

import argparse
import importlib.metadata
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.common import RESULTS, keep
from gcsa.actions import act
from gcsa.evaluation.cost import count_flops
from gcsa.evaluation.evaluation_mode import evaluation_mode
from gcsa.evaluation.poses import EXACT
from gcsa.groups import group as make_group
from gcsa.models.pose import LearnedPose
from gcsa.symmetry import Averaged, Canonical
from gcsa.tasks.classification.evaluate import draw_sample, model_and_data
from gcsa.testing import relative_error

BATCH = 32
IMAGES = 20
SIZES = (96, 97)
GROUPS = {"c4": "rotation", "d4": "roto-reflection"}
"""The groups, and what equiadapt calls them."""


class Adapted(nn.Module):
    """A network behind equiadapt's canonicalizer, for images (B, 3, S, S) and outputs that do not change.

    Args:
        network: that which is adapted.
        kind: the network that chooses: "e2cnn", "custom", or "optimized", a plain network that sees the image in every pose
            (`opt_group_equivariant.yaml`).
        share: of the side of the image, which the chooser sees.
        group: one of `GROUPS`.
        size: S, pixels.
    """

    def __init__(self, network: nn.Module, kind: str, share: float, group: str, size: int) -> None:
        super().__init__()
        from equiadapt.images.canonicalization.discrete_group import (
            GroupEquivariantImageCanonicalization,
            OptimizedGroupEquivariantImageCanonicalization,
        )
        from equiadapt.images.canonicalization_networks import (
            ConvNetwork,
            CustomEquivariantNetwork,
            ESCNNEquivariantNetwork,
        )
        from omegaconf import OmegaConf

        resized = 96 if share < 1 else size
        of_group = dict(group_type=GROUPS[group], num_rotations=4)
        chosen: dict[str, Any] = dict(beta=1.0, input_crop_ratio=share, resize_shape=resized)
        made: Any = GroupEquivariantImageCanonicalization
        shape, fields = (3, resized, resized), 128 // make_group(group).order
        options = dict(in_shape=shape, out_channels=fields, kernel_size=5, num_layers=3, **of_group)
        if kind == "optimized":
            chooser: Any = ConvNetwork(shape, out_channels=16, kernel_size=7, num_layers=3, out_vector_size=128)
            chosen |= dict(**of_group, artifact_err_wt=0, learn_ref_vec=False)
            made = OptimizedGroupEquivariantImageCanonicalization
        elif kind == "custom":
            chooser = CustomEquivariantNetwork(**options, device="cpu")
            chooser.group_type, chooser.num_rotations = of_group["group_type"], of_group["num_rotations"]
        else:
            chooser = ESCNNEquivariantNetwork(**options)
        self.canonicalizer = made(chooser, OmegaConf.create(chosen), (3, size, size))
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network(self.canonicalizer(x))


def versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("equiadapt", "kornia", "e2cnn")}


def systems(network: nn.Module, group: str, size: int) -> dict[str, nn.Module]:
    """The network as it is, in each wrapper of gcsa, and behind equiadapt."""
    torch.manual_seed(0)
    made: dict[str, nn.Module] = {
        "as it is": network,
        "gcsa, Averaged": Averaged(network, group),
        "gcsa, Canonical, moments": Canonical(network, group),
        "gcsa, Canonical, LearnedPose": Canonical(network, group, LearnedPose(3, group)),
        "equiadapt, e2cnn, its example": Adapted(network, "e2cnn", 0.8, group, size),
        "equiadapt, custom, whole image": Adapted(network, "custom", 1.0, group, size),
    }
    if group == "c4":  # that of its example
        made["equiadapt, e2cnn, whole image"] = Adapted(network, "e2cnn", 1.0, group, size)
    return made


def answers(network: nn.Module, images: Tensor, group: str) -> Tensor:
    """The scores (|H|, N, K) of images (N, C, S, S) in all poses, the identity first."""
    with evaluation_mode(network):
        return torch.stack(
            [
                torch.cat([network(act(some, group, g, "image")) for some in images.split(BATCH)])
                for g in range(make_group(group).order)
            ]
        )


def changes(scores: Tensor) -> dict[str, float]:
    """How the scores (|H|, N, K) of `answers` change under the elements of a group but the identity: the largest relative error; of
    all images and elements, the share whose own relative error is above rounding, the median error, and the share of answers that
    change."""
    upright, *moved = scores
    each = torch.cat([(rows - upright).norm(dim=1) / upright.norm(dim=1) for rows in moved])
    other = torch.cat([rows.argmax(1) != upright.argmax(1) for rows in moved])
    return {
        "relative": max(relative_error(rows, upright) for rows in moved),
        "above_rounding": float((each > EXACT).double().mean()),
        "median": float(each.median()),
        "answers": float(other.double().mean()),
    }


def measure(source: str, group: str) -> dict[str, Any]:
    """System to size to its row."""
    network, data, _ = model_and_data(source, {"name": "pcam", "seed": 0})
    images = draw_sample(data, "val").first(IMAGES)
    rows: dict[str, Any] = {}
    for size in SIZES:
        padded = F.pad(images, (0, size - images.shape[3], 0, size - images.shape[2]), mode="replicate")
        alone = count_flops(network, padded[0])
        for name, system in systems(network, group, size).items():
            passes = count_flops(system, padded[0]) / alone  # first: equiadapt keeps tensors, and is not copied then
            rows.setdefault(name, {})[str(size)] = changes(answers(system, padded, group)) | {"passes": passes}
            print(f"{name}, {group}, {size} pixels: {rows[name][str(size)]}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a .ckpt of train.py or weights, of a classifier of PatchCamelyon")
    parser.add_argument("group", choices=GROUPS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = measure(args.model, args.group)
    about = {"model": "tf_efficientnet_lite0", "group": args.group, "images": IMAGES, "versions": versions()}
    keep(RESULTS / f"symmetry/equiadapt_{args.group}.json", about | {"rows": rows})


if __name__ == "__main__":
    main()
