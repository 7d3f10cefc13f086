"""Wrong arguments of each command: one sentence on stderr, status 2, and nothing left behind."""

import os
from pathlib import Path

import pytest
import torch

from gcsa.testing import randomize

from ..export.small import recognizer
from .conftest import Run


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the arguments below name as @NAME."""
    folder = tmp_path_factory.mktemp("things")
    randomize(recognizer()).save_pretrained(folder / "lines")
    (folder / "text.ckpt").write_text("not a checkpoint")
    torch.save({"weights": 1}, folder / "other.ckpt")
    (folder / "line.png").write_bytes(b"never read")
    (folder / "empty").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "config").mkdir()
    (folder / "config" / "config.json").write_text("{")
    return folder


EXPORT = [
    ("gcsa_tinny", "unknown model gcsa_tinny"),
    ("missing.ckpt", "there is no checkpoint missing.ckpt"),
    ("@text.ckpt", "text.ckpt is damaged or not a checkpoint of train.py"),
    ("@other.ckpt", "other.ckpt is damaged or not a checkpoint of train.py"),
    ("@line.png", "unknown model"),
    ("@config", "config"),
    ("@empty", "empty"),
    ("local-dir:missing", "there is no"),
    ("gcsa_ocr_tiny.print.la09", "is an adapter: name its base"),
    ("missing.ckpt --group c4", "--group c4 is for a name in timm"),
    ("gcsa_tiny --group c0", "c0"),
    ("gcsa_tiny --group c100000", "c100000"),
    ("gcsa_tiny --group z4", "z4"),
    ("gcsa_tiny --size 15 15", "resize 15 to 12 or 16"),
    ("gcsa_tiny --size 0 16", "0 is not a whole number of pixels from 1 to 4096"),
    ("gcsa_tiny --size -16 16", "-16 is not a whole number of pixels"),
    ("gcsa_tiny --size 16 100000", "100000 is not a whole number of pixels from 1 to 4096"),
    ("gcsa_tiny --size 1.5 16", "1.5 is not a whole number of pixels"),
    ("gcsa_tiny --size 16", "expected 2 arguments"),
    ("gcsa_tiny --size 1e9 16", "1e9 is not a whole number of pixels"),
    ("gcsa_tiny --format tflite", "invalid choice: 'tflite'"),
    ("gcsa_tiny --output missing/m", "to write m into: create it first"),
    ("gcsa_tiny --output @empty", "is a folder: name a file"),
    ("gcsa_tiny --output /dev/full", "is a device or a pipe, not a file"),
    ("gcsa_tiny --output @pipe", "is a device or a pipe, not a file"),
    ("gcsa_tiny --output /proc/m", "the folder /proc takes no files"),
    ("gcsa_tiny --format aoti", "must end in .pt2"),
    ("gcsa_tiny --colour", "unrecognized arguments: --colour"),
    ("", "arguments are required: model"),
    ("@lines --size 16 64", "8 pixels high, not 16"),
]
TRANSCRIBE = [
    ("", "arguments are required: MODEL, IMAGES"),
    ("@lines", "arguments are required: IMAGES"),
    ("missing.ckpt @line.png", "there is no checkpoint missing.ckpt"),
    ("@text.ckpt @line.png", "text.ckpt is damaged"),
    ("@empty @line.png", "empty"),
    ("gcsa_tiny.rotmnist @line.png", "holds weights for classification"),
    ("gcsa_ocr_tiny.fr99 @line.png", "gcsa_ocr_tiny.fr99"),
    ("@lines missing", "there is no missing: give line images"),
    ("@lines missing.png", "there is no missing.png: give line images"),
    ("gcsa_ocr_tiny.fr18 @line.png", "did you mean gcsa_ocr_tiny.fr17?"),
    ("@lines @empty", "holds no line images"),
    ("@lines @pipe", "is a device or a pipe"),
    ("@lines /dev/zero", "is a device or a pipe"),
    ("@lines gcsa_ocr_tiny.print.la09", "nothing to read: give images behind the adapter"),
    (
        "@lines gcsa_ocr_tiny.print.la09 @line.png",
        "is of another recogniser, which knows other characters: name its base",
    ),
    ("@lines @line.png --adapter @empty", "adapter_config.json"),
    ("@lines @line.png --device foo", "--device foo cannot be used here"),
    ("@lines @line.png --device cuda:99", "--device cuda:99 cannot be used here"),
    ("@lines @line.png --device meta", "--device meta cannot be used here"),
    ("@lines @line.png --threads 0", "0 is not a whole number from 1 to"),
    ("@lines @line.png --threads 1000000", "1000000 is not a whole number from 1 to 1000"),
    ("@lines @line.png --beams 0", "0 is not a whole number from 1 to"),
    ("@lines @line.png --beams -1", "-1 is not a whole number"),
    ("@lines @line.png --beams two", "two is not a whole number"),
    ("@lines @line.png --batch-size 0", "0 is not a whole number"),
    ("@lines @line.png --orientation down", "invalid choice: 'down'"),
    ("@lines @line.png --format xml", "invalid choice: 'xml'"),
    ("@lines @line.png --output missing/text", "to write text into: create it first"),
    ("@lines @line.png --output @empty", "is a folder: name a file"),
    ("@lines @line.png --output /dev/full", "is a device or a pipe, not a file"),
]
EVALUATE = [
    ("", "no model given: set model="),
    ("model=gcsa_tinny", "unknown model gcsa_tinny"),
    ("model=missing.ckpt", "there is no checkpoint missing.ckpt"),
    ("model=@text.ckpt", "text.ckpt is damaged"),
    ("model=gcsa_ocr_tiny.fr17", "gcsa_ocr_tiny.fr17"),
    ("gcsa_tiny.rotmnist", "'gcsa_tiny.rotmnist' is no option: write KEY=VALUE, such as model=gcsa_tiny.rotmnist"),
    ("model=@empty", "empty"),
    ("model=gcsa_tiny limit=0", "limit=0"),
    ("model=gcsa_tiny limit=many", "limit=many"),
    ("model=gcsa_tiny curve_images=0", "curve_images="),
    ("model=gcsa_tiny split=foo", "split=foo must be one of test, val, train"),
    ("model=gcsa_tiny device=tpu", "device=tpu must be one of auto, cpu, cuda"),
    ("model=gcsa_tiny overlay=[missing]", "there is no missing/evaluation.json to overlay"),
    ("model=gcsa_tiny overlay=missing", "overlay"),
    ("model=gcsa_tiny data=minst", "unknown data 'minst': choose one of cifar10, digits"),
    ("model=gcsa_tiny data=mnist data.root=missing", "missing/MNIST"),
    ("model=gcsa_tiny modle=x", "unknown key 'modle'"),
    ("model=gcsa_tiny threads=0", "threads="),
    ("model=gcsa_tiny seed=-1", "seed="),
    ("model=gcsa_tiny output_dir=/dev/null/out", "/dev/null/out"),
    ("model=gcsa_tiny data.batch_size=0", "batch_size=0"),
]
TRAIN = [
    ("model=gcsa_tinny", "unknown model 'gcsa_tinny'"),
    ("model.widht=3", "unknown key 'model.widht'"),
    ("data=minst", "unknown data 'minst'"),
    ("data.batch_size=0", "data.batch_size="),
    ("output_dir=/dev/null/out", "/dev/null/out"),
    ("trainer.max_epochs=0", "trainer.max_epochs="),
    ("monitor.metric=val/beauty", "monitor.metric=val/beauty is not measured"),
    ("data=mnist data.root=missing", "missing/MNIST"),
    ("model.fields=", "fields= must be a whole number"),
    ("data=image_folder", "data.path is missing: give data.path=..."),
    ("data=@empty", "is a path: write data=image_folder data.path="),
    ("output_dir=a=b", "a value with = in it needs quotes within quotes, such as 'output_dir=\"a=b\"'"),
    ("seed", "'seed' is no option: write KEY=VALUE"),
    ("--colour", "unrecognized arguments: --colour"),
]


def rows() -> list[object]:
    tables = {"export": EXPORT, "transcribe": TRANSCRIBE, "evaluate": EVALUATE, "train": TRAIN}
    return [pytest.param(name, *row, id=f"{name} {row[0]}") for name, table in tables.items() for row in table]


@pytest.mark.parametrize(("command", "arguments", "message"), rows())
def test_wrong_arguments(command: str, arguments: str, message: str, things: Path, run: Run) -> None:
    given = [argument.replace("@", f"{things}/") for argument in arguments.split()]
    if command == "export":
        defaults = {"--format": "folded", "--output": "m.pt"}
        given += [part for option, value in defaults.items() if option not in given for part in (option, value)]
    code, out, err = run(command, *given)
    assert code == 2, err
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1
    assert out == ""
    assert os.listdir() == []
