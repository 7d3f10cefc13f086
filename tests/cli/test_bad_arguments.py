"""Wrong arguments of each command: one sentence on stderr, status 2, and nothing left behind."""

import os
from pathlib import Path

import pytest
import torch

from gcsa.tasks.segmentation import SegmentationPredictor
from gcsa.testing import randomize

from ..export.small import recognizer
from .conftest import Run
from .test_segment import SIZES


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the arguments below name as @NAME."""
    folder = tmp_path_factory.mktemp("things")
    randomize(recognizer()).save_pretrained(folder / "lines")
    SegmentationPredictor.create("gcsa_unet_tiny", **SIZES).save_pretrained(folder / "nuclei")
    (folder / "text.ckpt").write_text("not a checkpoint")
    torch.save({"weights": 1}, folder / "other.ckpt")
    for name in ("line.png", "line.tif", "line.h5"):
        (folder / name).write_bytes(b"never read")
    (folder / "empty").mkdir()
    os.mkfifo(folder / "pipe")
    for name, content in (("config/config.json", "{"), ("damaged/evaluation.json", '{"label": "x", "rotation": {}}')):
        (folder / name).parent.mkdir()
        (folder / name).write_text(content)
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
    ("gcsa_tiny --size 0 16", "0 is not a whole number from 1 to 4096"),
    ("gcsa_tiny --size -16 16", "-16 is not a whole number"),
    ("gcsa_tiny --size 16 100000", "100000 is not a whole number from 1 to 4096"),
    ("gcsa_tiny --size 1.5 16", "1.5 is not a whole number"),
    ("gcsa_tiny --size 16", "expected 2 arguments"),
    ("gcsa_tiny --size 1e9 16", "1e9 is not a whole number"),
    ("gcsa_tiny --format tflite", "invalid choice: 'tflite'"),
    ("gcsa_tiny --output missing/m", "to write m into: create it first"),
    ("gcsa_tiny --output @empty", "is a folder: name a file"),
    ("gcsa_tiny --output /dev/full", "is a device or a pipe, not a file"),
    ("gcsa_tiny --output @pipe", "is a device or a pipe, not a file"),
    ("gcsa_tiny --output /proc/m", "the folder /proc takes no files"),
    ("gcsa_tiny --format aoti", "must end in .pt2"),
    ("gcsa_tiny --colour", "unrecognized arguments: --colour"),
    ("", "arguments are required: WEIGHTS"),
    ("@lines --size 16 64", "8 pixels high, not 16"),
    (
        "gcsa_tiny --format onnx-int8",
        "onnx-int8 is calibrated on images of the kind that the model will see: give --images FOLDER",
    ),
    (
        "best.ckpt --format onnx-int8 --images .",
        "a .ckpt does not hold how its images are normalised: name the weights folder",
    ),
]
EMBED = [
    ("nothing @line.png", "there is no nothing/config.json"),
    ("gcsa_ocr_tiny.fr17 @line.png", "gcsa_ocr_tiny.fr17 holds weights for recognition"),
    ("gcsa_pooled_small.pcam missing.png", "there is no missing.png: give images, or folders of them"),
    ("gcsa_pooled_small.pcam @empty", "empty is a folder without images"),
    ("gcsa_pooled_small.pcam @line.png --output x.csv", "--output x.csv must end in .parquet or .h5"),
    ("gcsa_pooled_small.pcam @line.png --output no/x.h5", "to write x.h5 into: create it first"),
    ("gcsa_pooled_small.pcam @line.h5 --output @line.h5", "line.h5 is one of the images, and would be overwritten"),
    ("gcsa_pooled_small.pcam @line.png --batch-size 0", "0 is not a whole number from 1 to 10000"),
    ("gcsa_pooled_small.pcam @line.png --device tpu", "--device tpu cannot be used here"),
]
CLASSIFY = [
    ("gcsa_pooled_small.pcam @line.png --output a.txt", "--output a.txt must end in .csv"),
    ("gcsa_pooled_small.pcam nowhere", "there is no nowhere"),
    ("gcsa_unet_tiny.nuclei @line.png", "holds weights for segmentation: name weights for classification"),
    (
        "gcsa_pooled_small.pcam @line.png --adapter gcsa_ocr_tiny.print.de19",
        "the adapter in gcsa_ocr_tiny.print.de19",
    ),
]
SEGMENT = [
    ("nothing @line.png", "there is no nothing/config.json"),
    ("gcsa_tiny.rotmnist @line.png", "gcsa_tiny.rotmnist holds weights for classification"),
    ("gcsa_ocr_tiny.fr17 @line.png", "gcsa_ocr_tiny.fr17 holds weights for recognition"),
    ("@nuclei missing.png", "there is no missing.png: give images, or folders of them"),
    ("@nuclei @empty", "empty is a folder without images"),
    ("@nuclei /dev/null", "/dev/null is a device or a pipe"),
    ("@nuclei @line.png @line.tif", "line.tif have one name"),
    ("@nuclei @line.png --prob-thresh 1.5", "1.5 is not a number between 0 and 1"),
    ("@nuclei @line.png --only csv,png", "csv,png is not some of labels,overlay,csv,geojson"),
    ("@nuclei @line.png --tile 0", "0 is not a whole number from 1 to 65536"),
    ("@nuclei @line.png --tile 5", "--tile 5 is less than the 72 pixels that are read around a tile: use 72"),
    ("@nuclei @line.png --output x.png", "--output x.png is the folder of several files: name it without .png"),
    ("@nuclei @line.png --device tpu", "--device tpu cannot be used here"),
    ("@nuclei @line.png --output @line.h5", "is a file: name a folder"),
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
    ("@lines @empty", "holds no images"),
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
    ("@lines @line.png --output @text.ckpt/", "is a file: name a folder"),
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
    ("model=gcsa_tiny copies=0", "copies=0"),
    ("model=gcsa_tiny cyclic=1", "cyclic=1"),
    ("model=gcsa_tiny adapter=some", "adapter=some needs trained weights"),
    ("model=gcsa_tiny overlay=[@damaged]", "evaluation.json is damaged"),
    ("model=gcsa_small", "28 x 28"),
]
TRAIN = [
    ("model=gcsa_tinny", "unknown model 'gcsa_tinny': choose one of alexnet"),
    ("modle=gcsa_tiny", "unknown key 'modle': choose one of "),
    ("model.widht=3", "unknown key 'model.widht': choose one of "),
    ("data=minst", "unknown data 'minst': choose one of cifar10"),
    ("experiment=best", "unknown experiment 'best': choose one of "),
    ("optimizer/schedule=linear", "unknown optimizer/schedule 'linear': choose one of constant, cosine"),
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
    ("adapter=null", "adapter=null chooses nothing: leave it out, or choose one of full, "),
    ("--colour", "unrecognized arguments: --colour"),
    ("model.group=x4", "group=x4 must be"),
    ("model.attention=global", "attention=global must be one of spatial, group, linear"),
    ("model.fields=7", "does not divide fields=7"),
    ("model.stem_strides=[2,2,2]", "multiples of 8; resize 28 to 24 or 32"),
    ("callbacks=early_stopping data.train_on_val=true", "leaves no validation to stop early by: use callbacks=default"),
    ("model=gcsa_unet_tiny", "model=gcsa_unet_tiny is for segmentation, and data=digits for classification"),
    ("model=gcsa_ocr_tiny", "model=gcsa_ocr_tiny is for recognition, and data=digits for classification"),
    (
        "data=mask_folder data.path=x monitor.metric=val/dice",
        "unknown network 'gcsa_tiny': choose one of gcsa_unet_tiny",
    ),
    ("adapter=lora adapter.base=null", "adapter.base is missing: give a .ckpt of train.py, local-dir:FOLDER or"),
    ("+colour=red", "unknown key 'colour'"),
    ("+task.label_smoothing=0.2", "'task.label_smoothing' is a key already: write it without +"),
    (
        "experiment=nuclei task.loss=bce",
        "unknown key 'task.loss': choose one of name",
    ),
    (
        "experiment=ocr_ctc task.compile=true",
        "unknown key 'task.compile': choose one of name",
    ),
    ("+lr=0.5", "unknown key 'lr': did you mean optimizer.lr?"),
    ("+callbacks.early_stopping.patience=1", "callbacks.early_stopping is not in use"),
    ("+monitor.patience=1", "unknown key 'monitor.patience'"),
    ("+callbacks.ema.rate=1", "unexpected keyword argument 'rate'"),
    ("+trainer.colour=1", "unexpected keyword argument 'colour'"),
    ("+optimizer.rate=1", "unexpected keyword argument 'rate'"),
    ("adapter=lora adapter.base=gcsa_tiny.rotmnist +adapter.size=1", "unknown key 'adapter.size'"),
]


DEFAULTS = {
    "export": {"--format": "folded", "--output": "m.pt"},
    "embed": {"--output": "x.h5"},
    "segment": {"--output": "found"},
}


def rows() -> list[object]:
    tables = {"export": EXPORT, "embed": EMBED, "classify": CLASSIFY, "segment": SEGMENT, "transcribe": TRANSCRIBE}
    tables |= {"evaluate": EVALUATE, "train": TRAIN}
    return [pytest.param(name, *row, id=f"{name} {row[0]}") for name, table in tables.items() for row in table]


@pytest.mark.parametrize(("command", "arguments", "message"), rows())
def test_wrong_arguments(
    command: str, arguments: str, message: str, things: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gcsa.tasks.classification.data.digits.Digits._read", lambda *_: pytest.fail("data was read"))
    given = [argument.replace("@", f"{things}/") for argument in arguments.split()]
    for option, value in DEFAULTS.get(command, {}).items():
        given += [] if option in given else [option, value]
    code, out, err = run(command, *given)
    assert code == 2, err
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1
    assert out == ""
    assert os.listdir() == []


IMAGES = [
    ("missing.png", "there is no missing.png"),
    ("@empty", "empty"),
    ("@pipe", "is a device or a pipe"),
    ("@line.png --output missing/{file}", "create it first"),
    ("@line.png --report @text.ckpt", "text.ckpt is there already, and is no report"),
    ("@line.png --report @line.png", "is one of the inputs"),
    ("@line.png --threads 0", "0 is not a whole number from 1"),
    ("@line.png --workers 2 --threads 1", "--threads 1 is of one process"),
    ("@line.png --partition x", "--partition x is of --cluster"),
]
DEVICE = [("@line.png --device tpu", "--device tpu cannot be used here")]
GROUP = [("@line.png --group d4", "--group d4 is the group of --symmetry")]
BEFORE_WEIGHTS = {
    "classify gcsa_pooled_small.pcam": ("a.csv", [*IMAGES, *DEVICE, *GROUP]),
    "embed gcsa_pooled_small.pcam": ("x.h5", [*IMAGES, *DEVICE, *GROUP]),
    "embed gcsa_pooled_small.pcam --patches": (
        "found",
        [
            *(row for row in IMAGES if "missing/" not in row[0]),
            ("@line.png --output @text.ckpt/x", "text.ckpt"),
            ("@line.png --output /proc/x", "the folder /proc takes no files"),
            *DEVICE,
            *GROUP,
        ],
    ),
    "segment gcsa_unet_tiny.nuclei": (
        "found",
        [
            *(row for row in IMAGES if "missing/" not in row[0]),
            ("@line.png --output @text.ckpt", "is a file: name a folder"),
            ("@line.png --output @text.ckpt/x", "text.ckpt"),
            ("@line.png --output /proc/x", "the folder /proc takes no files"),
            ("@line.png --only labels --properties solidity", "add csv to --only"),
            *DEVICE,
        ],
    ),
    "transcribe gcsa_ocr_tiny.print": ("a.txt", [*IMAGES, *DEVICE, ("@line.png --format pdf --output -", "pdf")]),
    "orient": ("a.csv", [*IMAGES, ("@line.png --fix /proc/x", "the folder /proc takes no files")]),
    "audit gcsa_pooled_small.pcam": (
        "found",
        [
            ("--images missing.png", "there is no missing.png"),
            ("--images @empty", "empty is a folder without images"),
            ("--images @line.png --output @text.ckpt", "is a file: name a folder"),
            ("--images @line.png --output /proc/x", "the folder /proc takes no files"),
            ("--images @line.png --device tpu", "--device tpu cannot be used here"),
            ("--images @line.png --group d4", "--group d4 is the group of --symmetry"),
        ],
    ),
    "export gcsa_unet_tiny.nuclei --format bioimageio": ("x.zip", [("--output missing/x.zip", "create it first")]),
    "export gcsa_ocr_tiny.print --format kraken": ("x.mlmodel", [("--output missing/x", "create it first")]),
    "export gcsa_pooled_small.pcam --format hub": ("x", [("--output @empty", "is there already")]),
    "export gcsa_pooled_small.pcam --format onnx": (
        "x.onnx",
        [
            ("--output missing/x.onnx", "create it first"),
            ("--images @empty", "is no folder with images"),
            ("--images missing", "is no folder with images"),
            ("--group c4", "--group c4 is for a name in timm"),
        ],
    ),
    "adapt": (
        "x",
        [
            ("missing", "missing is not a folder"),
            ("@empty", "holds no line images"),
            ("@line.png", "line.png is not a folder"),
            ("@empty --output /proc/x", "the folder /proc takes no files"),
            ("@empty --output @text.ckpt", "is there already"),
        ],
    ),
    "evaluate model=gcsa_pooled_small.pcam": (
        None,
        [
            ("data=image_folder data.path=missing", "missing is not a folder"),
            ("data=image_folder data.path=@empty", "empty holds no folders"),
            ("data=table data.path=missing.csv", "missing.csv is not a file"),
            ("data=pcam data.root=@empty", "pcam"),
            ("data=digits split=foo", "split=foo"),
            ("data=digits device=tpu", "device=tpu"),
            ("data=digits output_dir=/dev/null/out", "/dev/null/out"),
            ("data=digits data.batch_size=0", "batch_size=0"),
        ],
    ),
    "evaluate model=gcsa_unet_tiny.nuclei data=mask_folder": (
        None,
        [("data.path=missing", "missing is not a folder"), ("data.path=@empty", "holds no images and masks")],
    ),
    "evaluate model=gcsa_ocr_tiny.print data=lines": (
        None,
        [("data.path=missing", "missing is not a folder"), ("data.path=@empty", "holds no line images")],
    ),
    "train data=image_folder adapter=full adapter.base=gcsa_pooled_small.pcam model=gcsa_pooled_small": (
        None,
        [("data.path=missing", "missing is not a folder"), ("data.path=@empty", "empty holds no folders")],
    ),
    "train experiment=nuclei_few": (
        None,
        [("data.path=missing", "missing is not a folder"), ("data.path=@empty", "holds no images and masks")],
    ),
    "train experiment=ocr_adapter adapter.base=gcsa_ocr_tiny.print": (
        None,
        [("data.path=missing", "missing is not a folder"), ("data.path=@empty", "holds no line images")],
    ),
}


@pytest.mark.parametrize(
    ("command", "output", "arguments", "message"),
    [
        pytest.param(command, output, *row, id=f"{command} {row[0]}")
        for command, (output, table) in BEFORE_WEIGHTS.items()
        for row in table
    ],
)
def test_inputs_are_refused_before_weights_are_read(
    command: str,
    output: str | None,
    arguments: str,
    message: str,
    things: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for reader in ("schema.read_tensors", "adapter.read_tensors", "files.torch.load"):
        monkeypatch.setattr(f"gcsa.weights.{reader}", lambda *_, **__: pytest.fail("weights were read"))
    given = [
        part.replace("@", f"{things}/").replace("{file}", str(output))
        for part in [*command.split(), *arguments.split()]
    ]
    code, out, err = run(*given, *([] if output is None or "--output" in given else ["--output", output]))
    assert (code, err.count("\n"), err.startswith("error: ")) == (2, 1, True), err
    assert message in err
    assert out == ""
    assert os.listdir() == []
