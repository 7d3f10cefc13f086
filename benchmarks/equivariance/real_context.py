"""What changes the answers of a classifier where a slide itself is rotated, with the tissue around each patch.

    python -m benchmarks.equivariance.real_context CMU-1-Small-Region.svs gcsa_pooled_small.pcam_steady --output NAME

The slide is one of 20x, such as OpenSlide's test data (https://openslide.cs.cmu.edu/download/openslide-testdata/Aperio/, CC0). Each
patch of 96 pixels at 10x is cut out after rotation by every multiple of 7.5 degrees at 20x, so nothing beyond its border is made up.
Patches lie on a grid and overlap by half; a third of each is tissue at least. benchmarks/results/real_context/NAME.json holds the share of
answers that change, and that of rotated patches whose nearest among all upright ones, by features, is the patch itself.
"""

from __future__ import annotations

import argparse
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import gcsa
from benchmarks.common import RESULTS, keep
from benchmarks.equivariance.off_grid import Both, answers
from gcsa._utils.errors import UserError
from gcsa.images.resampling import resampled
from gcsa.images.slides import open_slide
from gcsa.images.tissue import overview, shares, tissue
from gcsa.tasks.classification.off_grid import moved

SIZE, STRIDE = 192, 96
"""Pixels of the slide along a patch, and from one to the next."""
WINDOW = 276
"""Pixels of the slide along a square that holds the patch at any angle, with one to interpolate."""
LEAST_TISSUE = 0.3
"""The share of a patch that is coloured."""
MPP = (0.45, 0.55)
"""Micrometres a pixel at 20x."""


def windows(path: Path) -> Tensor:
    """The squares (N, 3, WINDOW, WINDOW) around the patches of tissue, in 0..1. Raises UserError for a slide that is not of 20x."""
    with open_slide(path, 3) as slide:
        if slide.mpp is None or not MPP[0] <= slide.mpp <= MPP[1]:
            raise UserError(
                f"{path} has {slide.mpp} micrometres a pixel: give a slide of 20x, from {MPP[0]} to {MPP[1]}"
            )
        corners = np.array(list(product(*(range(0, side - WINDOW + 1, STRIDE) for side in slide.shape))), np.int64)
        tissues = shares(tissue(overview(slide)), corners + (WINDOW - SIZE) // 2, SIZE, slide.shape)
        chosen = corners[tissues >= LEAST_TISSUE]
        squares = [slide.patch(int(top), int(left), WINDOW, WINDOW) for top, left in chosen]
    return torch.from_numpy(np.stack(squares)).permute(0, 3, 1, 2).float() / 255


def cut(squares: Tensor, degrees: float) -> Tensor:
    """Patches (N, 3, SIZE / 2, SIZE / 2) of the middle of `squares`, rotated, in half the pixels."""
    margin = (WINDOW - SIZE) // 2
    if degrees % 90:
        rotated = resampled(squares, degrees)
    else:
        rotated = squares.rot90(round(degrees / 90), (2, 3))
    return F.avg_pool2d(rotated[..., margin : margin + SIZE, margin : margin + SIZE], 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("slide", type=Path)
    parser.add_argument("model", help="what gcsa.load takes, of a classifier of patches")
    parser.add_argument("--output", required=True, metavar="NAME")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    predictor = gcsa.load(args.model).fold()
    squares = windows(args.slide)
    mean, std = (squares.new_tensor(v).view(-1, 1, 1) for v in (predictor.preprocess.mean, predictor.preprocess.std))
    network = Both(predictor.network)
    upright, known = answers(network, squares, mean, std, partial(cut, degrees=0))
    members = {}
    for degrees in np.arange(7.5, 360, 7.5).tolist():
        scores, features = answers(network, squares, mean, std, partial(cut, degrees=degrees))
        kept = 1 - moved(features, known, "embedding")
        members[f"{degrees:g}"] = {"changed": moved(scores, upright, "classifier"), "neighbour_kept": kept}
        print(degrees, members[f"{degrees:g}"], flush=True)
    content = {"model": args.output, "slide": args.slide.name, "patches": len(squares), "angles": members}
    keep(RESULTS / f"real_context/{args.output}.json", content)


if __name__ == "__main__":
    main()
