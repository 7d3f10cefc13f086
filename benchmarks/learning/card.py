"""What a model card says of published weights, measured: `python -m benchmarks.learning.card gcsa_tiny.rotmnist rotmnist`.

For a classifier it reads the test set as `evaluate.py model=NAME data=DATA copies=8` does. With a recogniser or an adapter of
one (`gcsa_ocr_tiny.fr17 fr17_roman_print`) it reads the test lines of that script, also turned. What it finds is kept in
docs/results/published/, and a picture of the worst mistakes beside the weights. `python docs/report` writes the cards.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from matplotlib.figure import Figure
from omegaconf import OmegaConf
from PIL import Image

from benchmarks.learning.queue import ROOT
from gcsa.checkpoints import read
from gcsa.evaluation import save
from gcsa.evaluation.run import evaluate
from gcsa.ocr.data.datamodule import LinesDataModule
from gcsa.ocr.load import load_recognizer
from gcsa.ocr.measure import measure
from gcsa.ocr.metrics import text_scores
from gcsa.ocr.recognizers.ctc import CTCRecognizer
from gcsa.published import list_published, list_weights, published
from gcsa.training.results import git_commit, machine, write_json

RESULTS = ROOT / "docs/results/published"
WORST_LINES = 6


def keep(name: str, found: dict[str, Any]) -> None:
    """Writes what was found of the weights called `name`, and on what machine."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    print(write_json(RESULTS / f"{name}.json", {**found, "model": name, "machine": machine()}))


def keep_small(picture: Path, kept: Path) -> None:
    """Writes a picture in two thirds of its size and 128 colours, for it is shipped with the weights."""
    image = Image.open(picture).convert("RGB")
    image.resize((image.width * 2 // 3, image.height * 2 // 3)).quantize(128).save(kept)


def classifier(name: str, data: str, curve_images: int) -> None:
    """Evaluates the classifier called `name` on the test set of a configured data set."""
    folder, commit = published(name), git_commit()
    asked = [f"data={data}", "copies=8", f"curve_images={curve_images}", f"label={name}"]
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        composed = OmegaConf.to_container(compose("evaluate", asked))
    config = {key: value for key, value in composed.items() if key != "output_dir"} | {"model": name}
    with tempfile.TemporaryDirectory() as output:
        found = evaluate({**config, "model": f"local-dir:{folder}"}, Path(output))
        keep_small(Path(output) / "mistakes.png", folder / "mistakes.png")
    del found["figures"]
    keep(name, {**found, "commit": commit, "config": config})


def recognizer(name: str, base: str, script: str) -> None:
    """Reads the test lines of a script with the recogniser called `base`, on which the adapter called `name` is put if it is
    another."""
    commit = git_commit()
    model = load_recognizer(published(base), None if base == name else published(name))
    data = LinesDataModule(script=script, charset=model.charset)
    data.setup("test")
    worst_lines(model, data, published(name) / "mistakes.png")
    found = measure(model, data.test_dataloader())
    keep(name, {"data": script, "split": "test", "lines": len(data.lines("test")), "results": found, "commit": commit})


def worst_lines(model: CTCRecognizer, data: LinesDataModule, file: Path) -> None:
    """Draws the test lines that the recogniser reads worst: their text, what was read, and the line."""
    lines = []
    for batch in data.test_dataloader():
        for image, text, reading in zip(batch.images, batch.texts, model.read(batch.images), strict=True):
            lines.append((text_scores([reading.text], [text]).cer, image[0], text, reading.text))
    worst = sorted(lines, key=lambda line: -line[0])[:WORST_LINES]
    figure = Figure(figsize=(9, 1.1 * len(worst)), dpi=80, layout="constrained")
    for panel, (rate, image, text, said) in zip(figure.subplots(len(worst), squeeze=False)[:, 0], worst, strict=True):
        panel.imshow(1 - image, cmap="gray")
        panel.axis("off")
        title = f"{text}\n{said}   ({rate:.0%} wrong)".replace("\u2e17", "=")  # a hyphen that the figure's font has not
        panel.set_title(title, fontsize=8, loc="left", parse_math=False)
    save(figure, file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list_published(), metavar="name", help=", ".join(list_published()))
    parser.add_argument("data", help="the configuration of its data, such as rotmnist, or the script of its lines")
    parser.add_argument("--curve-images", type=int, default=1000, help="how many images turn and shift")
    args = parser.parse_args()
    base = args.name if args.name in list_weights() else args.name.rpartition(".")[0]
    if read(published(base)).characters is None:
        classifier(args.name, args.data, args.curve_images)
    else:
        recognizer(args.name, base, args.data)


if __name__ == "__main__":
    main()
