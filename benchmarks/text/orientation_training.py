"""Trains the network of `gcsa orient`: `python -m benchmarks.text.orientation_training TILES FOLDER --minutes 60`.

TILES is a folder of `benchmarks.text.orientation_tiles`; files that are added while the training runs are taken in. FOLDER gets `state.pt`,
from which a training that was stopped goes on, and at the end the weights as gcsa reads them. The tiles are upright. Those with an
orientation to be learnt have it as target, the others equal probabilities. Other orientations follow by equivariance.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from gcsa.tasks.recognition.pages.orientation import TILE, OrientationScorer
from gcsa.weights import Weights, write

BATCH = 64
RATE = 0.002
AVERAGE = 0.998
EVERY = 100
"""Steps after which the state is written and new tiles are looked for."""
VALIDATION = 9000
"""Files with this number and above are not trained on."""


class Tiles:
    def __init__(self, folder: Path) -> None:
        self.folder, self.read = folder, set[Path]()
        self.tiles, self.known = np.zeros((0, TILE, TILE), np.int8), np.zeros(0, bool)

    def update(self) -> None:
        new = sorted(
            file for file in self.folder.glob("????.npz") if file not in self.read and int(file.stem) < VALIDATION
        )
        for file in new:
            self.read.add(file)
        parts = [np.load(file) for file in new]
        self.tiles = np.concatenate([self.tiles, *(part["tiles"] for part in parts)])
        self.known = np.concatenate([self.known, *(part["known"] for part in parts)])

    def draw(self, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        chosen = rng.integers(0, len(self.tiles), BATCH)
        return torch.from_numpy(self.tiles[chosen]).float()[:, None] / 31, torch.from_numpy(self.known[chosen])


def augmented(x: Tensor, rng: np.random.Generator) -> Tensor:
    """Another size, contrast and noise; a few are white on black."""
    side = int(TILE * rng.uniform(0.8, 1.25)) // 2 * 2
    x = F.interpolate(x, (side, side), mode="bilinear", antialias=True, align_corners=False)
    margin = (TILE - side) // 2
    x = F.pad(x, (margin,) * 4) if margin >= 0 else x[:, :, -margin : side + margin, -margin : side + margin]
    gain = torch.from_numpy(rng.uniform(0.7, 1.3, (len(x), 1, 1, 1)).astype(np.float32))
    gain *= torch.from_numpy(np.where(rng.random((len(x), 1, 1, 1)) < 0.04, -1, 1).astype(np.float32))
    noise = torch.from_numpy(rng.normal(size=x.shape).astype(np.float32)) * float(rng.choice((0, 0, 0.1, 0.3)))
    return (x * gain + noise).clamp(-4, 4)


def loss_of(scores: Tensor, known: Tensor) -> Tensor:
    logs = scores.log_softmax(1)
    return torch.where(known, -logs[:, 0], -logs.mean(1)).mean()


def widened(scorer: OrientationScorer, file: Path) -> None:
    """Puts narrower weights in front, from which the new fields take and to which they give nothing yet."""
    own = scorer.state_dict()
    for name, narrow in load_file(file).items():
        if name in own and narrow.ndim and own[name].ndim == narrow.ndim:
            front = tuple(slice(0, length) for length in narrow.shape)
            if narrow.ndim > 1 and own[name].shape[1] > narrow.shape[1]:
                own[name][: narrow.shape[0], narrow.shape[1] :] = 0
            own[name][front] = narrow


def validate(scorer: OrientationScorer, folder: Path) -> dict[str, str]:
    """For each script the share of tiles that are right, and of each kind without an orientation the mean highest probability."""
    right: dict[str, list[float]] = defaultdict(list)
    for file in sorted(folder.glob("????.npz")):
        if int(file.stem) >= VALIDATION:
            part = np.load(file)
            with torch.inference_mode():
                p = torch.cat(
                    [scorer(x[:, None].float() / 31) for x in torch.from_numpy(part["tiles"]).split(128)]
                ).softmax(1)
            for script, known, row in zip(part["script"], part["known"], p, strict=True):
                right[str(script)].append(float(row.argmax() == 0) if known else float(row.max()))
    return {script: f"{np.mean(values):.3f}" for script, values in sorted(right.items())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tiles", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--minutes", type=float, default=60, help="that the training takes, breaks included (default 60)"
    )
    parser.add_argument("--warm", type=Path, help="model.safetensors of a narrower or the same network to begin with")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    scorer, averaged = OrientationScorer(), OrientationScorer().eval()
    if args.warm:
        widened(scorer, args.warm)
    averaged.load_state_dict(scorer.state_dict())
    optimizer = torch.optim.AdamW(scorer.parameters(), RATE, weight_decay=0.01)
    state, step, before = args.folder / "state.pt", 0, 0.0
    args.folder.mkdir(parents=True, exist_ok=True)
    if state.exists():
        stored: dict[str, Any] = torch.load(state, weights_only=True)
        scorer.load_state_dict(stored["scorer"])
        averaged.load_state_dict(stored["averaged"])
        optimizer.load_state_dict(stored["optimizer"])
        step, before = stored["step"], stored["seconds"]
    data, rng, start, losses = Tiles(args.tiles), np.random.default_rng(step), time.monotonic() - before, []
    while (done := (time.monotonic() - start) / (60 * args.minutes)) < 1:
        if step % EVERY == 0:
            data.update()
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, (step + 1) / 100) * 0.5 * (1 + math.cos(math.pi * done))
        x, known = data.draw(rng)
        scorer.train()
        loss = loss_of(scorer(augmented(x, rng)), known)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(scorer.parameters(), 1.0)
        optimizer.step()
        step += 1
        losses.append(loss.item())
        with torch.no_grad():
            keep = min(AVERAGE, step / (step + 10))
            for a, b in zip(averaged.state_dict().values(), scorer.state_dict().values(), strict=True):
                a.lerp_(b, 1 - keep) if a.is_floating_point() else a.copy_(b)
        if step % EVERY == 0:
            part = state.with_suffix(".part")
            torch.save(
                {
                    "scorer": scorer.state_dict(),
                    "averaged": averaged.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "step": step,
                    "seconds": time.monotonic() - start,
                },
                part,
            )
            part.rename(state)
            print(f"{step} {done:.3f} loss {np.mean(losses):.4f} of {len(data.tiles)} tiles", flush=True)
            losses = []
        if step % (10 * EVERY) == 0:
            print(validate(averaged, args.tiles), flush=True)
    write(
        Weights(str(args.folder), "orientation", "orientation_scorer", {}, averaged.state_dict()),
        args.folder / "weights",
    )


if __name__ == "__main__":
    main()
