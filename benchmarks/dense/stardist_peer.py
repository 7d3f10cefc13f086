"""StarDist's own package (Schmidt et al. 2018, arXiv:1806.03535) on the nuclei: training, label maps, and their scores.

It needs TensorFlow, and so an environment of its own, without gcsa: `pip install "tensorflow-cpu==2.19.*" stardist` (written
with stardist 0.9.2, csbdeep 0.8.2, Keras 3.15 and numpy 2.1, Python 3.11). Two commands, from the repository:

`python -m benchmarks.dense.stardist_peer --minutes 30 --out FOLDER`, there, trains and writes to FOLDER the label maps of the
test images, upright and in the seven other poses turned back to upright, <id>_<pose>.png, and run.json;
`python -m benchmarks.dense.stardist_peer --measure FOLDER`, where gcsa is installed, reads them and writes both to benchmarks/results/stardist.

Network, losses, patches, augmentation and thresholds are those of the package and its example notebooks, with 32 rays on a grid
of 2 x 2. Training ends after the given minutes, validation included, and the weights are those of the lowest validation loss.
The learning rate is halved, as by default, after a tenth of the training without a lower one.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

RESULTS = Path(__file__).parents[2] / "benchmarks/results/stardist"
POSES = range(8)
"""Pose 0 is upright, poses 0 to 3 are as many quarter turns, and 4 to 7 the same of the mirrored image."""
STEPS = 100
"""Training steps from one validation to the next, StarDist's default."""
WAIT = 0.1
"""Share of the training without a lower validation loss after which the learning rate is halved: 40 of StarDist's 400 epochs."""
PACKAGES = ("stardist", "csbdeep", "tensorflow-cpu", "keras", "numpy")


def turned(image: NDArray[Any], pose: int) -> NDArray[Any]:
    """An upright image (H, W) or (H, W, C) in a pose."""
    return np.ascontiguousarray(np.rot90(image[:, ::-1] if pose >= 4 else image, pose % 4))


def upright(image: NDArray[Any], pose: int) -> NDArray[Any]:
    """What `turned` made an image in a pose of."""
    back = np.rot90(image, -(pose % 4))
    return np.ascontiguousarray(back[:, ::-1] if pose >= 4 else back)


def read_labels(path: Path) -> NDArray[np.int32]:
    with Image.open(path) as picture:
        return np.asarray(picture).astype(np.int32)


def names(data: Path, split: str) -> list[str]:
    return sorted(path.stem for path in (data / split / "images").glob("*.png"))


def read_split(data: Path, split: str, share: float, seed: int) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    """Normalised images (H, W, 3) and label maps without holes of a share of a split's images, drawn by `seed`."""
    from stardist import fill_label_holes

    chosen = np.array(names(data, split))
    if share < 1:
        chosen = np.random.default_rng(seed).permutation(chosen)[: max(1, round(share * len(chosen)))]
    images = [read_image(data / split / "images" / f"{name}.png") for name in chosen]
    labels = [fill_label_holes(read_labels(data / split / "masks" / f"{name}.png")) for name in chosen]
    return images, labels


def read_image(path: Path) -> NDArray[np.float32]:
    """(H, W, 3), grey repeated, 0 and 1 at two percentiles of all channels together."""
    from csbdeep.utils import normalize

    with Image.open(path) as picture:
        return normalize(np.asarray(picture.convert("RGB")), 1, 99.8, axis=(0, 1, 2))


def augment(
    random: np.random.Generator, image: NDArray[Any], labels: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """That of StarDist's example notebook: quarter turns and mirrors, another intensity, and noise."""
    pose = random.integers(len(POSES))
    image = turned(image, pose) * random.uniform(0.6, 2) + random.uniform(-0.2, 0.2)
    return image + random.uniform(0, 0.02) * random.normal(0, 1, image.shape), turned(labels, pose)


def use_threads(threads: int) -> None:
    """Holds this process on so many cores, for TensorFlow makes batches beside its own threads."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    os.environ["OMP_NUM_THREADS"] = str(threads)
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def within(seconds: float, plateau: Any) -> Any:
    """A Keras callback that ends training after so many seconds, lets `plateau` wait for `WAIT` of as many epochs as that will
    be, and prints a line an epoch."""
    import keras

    class Within(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            self.began = time.monotonic()

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch:
                epochs = seconds * epoch / (time.monotonic() - self.began)
                plateau.patience = max(1, round(WAIT * epochs))

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if time.monotonic() - self.began > seconds:
                self.model.stop_training = True

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            minutes = (time.monotonic() - self.began) / 60
            print(f"epoch {epoch + 1}, {minutes:.1f} minutes, validation loss {logs['val_loss']:.4f}", flush=True)

    return Within()


def train(args: argparse.Namespace, data: Path) -> tuple[Any, dict[str, Any]]:
    """The trained model with its thresholds, and what there is to say of its training."""
    import keras
    from stardist.models import Config2D, StarDist2D

    keras.config.disable_interactive_logging()  # or each step prints a bar
    keras.utils.set_random_seed(args.seed)
    images, labels = read_split(data, "train", args.share, args.seed)
    validation = read_split(data, "valid", 1, args.seed)
    config = Config2D(
        n_rays=32,
        grid=(2, 2),
        n_channel_in=3,
        train_patch_size=(args.patch, args.patch),
        train_batch_size=args.batch,
        train_steps_per_epoch=STEPS,
        train_tensorboard=False,
    )
    model = StarDist2D(config, name="model", basedir=str(args.out))
    model.prepare_for_training()
    (plateau,) = (c for c in model.callbacks if isinstance(c, keras.callbacks.ReduceLROnPlateau))
    model.callbacks.append(within(60 * args.minutes, plateau))
    wall, cpu = time.monotonic(), time.process_time()
    augmenter = partial(augment, np.random.default_rng(args.seed))
    history = model.train(images, labels, validation_data=validation, augmenter=augmenter, epochs=10**6).history
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    thresholds = model.optimize_thresholds(*validation)
    return model, {
        "images": len(images),
        "parameters": model.keras_model.count_params(),
        "fit_seconds": round(wall, 1),
        "fit_cpu_seconds": round(cpu, 1),
        "epochs": len(history["loss"]),
        "steps": int(model.keras_model.optimizer.iterations),
        "best_epoch": int(np.argmin(history["val_loss"])) + 1,
        "val_loss": [round(float(loss), 4) for loss in history["val_loss"]],
        "learning_rate": [float(rate) for rate in history["learning_rate"]],
        "thresholds": thresholds,
    }


def write_label_maps(model: Any, data: Path, folder: Path) -> None:
    """Those of all test images in all poses, turned back to upright."""
    for name in names(data, "test"):
        image = read_image(data / "test" / "images" / f"{name}.png")
        for pose in POSES:
            labels, _ = model.predict_instances(turned(image, pose))
            Image.fromarray(upright(labels, pose).astype(np.uint16)).save(folder / f"{name}_{pose}.png")


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))


def run(args: argparse.Namespace, data: Path) -> None:
    use_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    model, about = train(args, data)
    write_label_maps(model, data, args.out)
    options = {key: getattr(args, key) for key in ("minutes", "share", "seed", "threads", "patch", "batch")}
    versions = {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in PACKAGES}
    content = {**options, **about, "versions": versions, "cpu": processor(), "cores": os.cpu_count()}
    (args.out / "run.json").write_text(json.dumps(content, indent=2) + "\n")


def measure(folder: Path, data: Path) -> dict[str, Any]:
    """Scores of the upright label maps and those of the other poses; of the latter also how much differs from upright."""
    from gcsa.tasks.segmentation.metrics import InstanceScores, TransformedScores

    scores, turned_scores = InstanceScores(), TransformedScores()
    for name in names(data, "test"):
        drawn = read_labels(data / "test" / "masks" / f"{name}.png")
        first, *others = (read_labels(folder / f"{name}_{pose}.png") for pose in POSES)
        scores.update(first, drawn)
        for other in others:
            turned_scores.update(first, other, drawn)
    upright_scores = {name: float(value) for name, value in scores.compute().items()}
    return {"upright": upright_scores, "turned": turned_scores.compute()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="train, and write label maps to this folder")
    what.add_argument("--measure", type=Path, help="measure the label maps in this folder")
    parser.add_argument("--root", type=Path, default=Path(os.environ.get("GCSA_DATA", "data")), help="of the data sets")
    parser.add_argument("--minutes", type=float, default=30, help="of training, validation included")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--share", type=float, default=1.0, help="of the training images")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--patch", type=int, default=128, help="pixels a side of training patches")
    parser.add_argument("--batch", type=int, default=4, help="patches a training step")
    args = parser.parse_args()
    data = args.root / "nuclei"
    if not names(data, "test"):
        sys.exit(f"{data} holds no test images: name the folder of the data sets with --root")
    if args.out:
        run(args, data)
        return
    from gcsa.training.results import git_commit

    content = json.loads((args.measure / "run.json").read_text())
    content["commit"] = git_commit()
    content["results"] = measure(args.measure, data)
    file = RESULTS / f"nuclei_seed{content['seed']}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(content, indent=2) + "\n")
    print(json.dumps(content["results"], indent=2), file, sep="\n")


if __name__ == "__main__":
    main()
