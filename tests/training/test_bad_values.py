"""What cannot work is refused in one sentence that names it, before any data is read and with nothing left behind."""

from pathlib import Path

import pytest
from PIL import Image

from gcsa.cli.composition import task_errors
from tests.errors import raises
from tests.runs import TINY, composed, train

ROWS = [
    ("trainer.accelerator=tpu", "trainer.accelerator=tpu"),
    ("trainer.devices=0", "trainer.devices=0"),
    ("trainer.devices=1000", "trainer.devices=1000, but this machine has"),
    ("trainer.num_nodes=0", "trainer.num_nodes=0"),
    ("trainer.strategy=dpp", "invalid strategy name: `strategy='dpp'`"),
    ("trainer.max_epochs=0", "trainer.max_epochs=0"),
    ("trainer.max_epochs=null", "trainer.max_epochs=null"),
    ("trainer.max_steps=0", "trainer.max_steps=0"),
    ("trainer.max_time=90m", "trainer.max_time=90m must be days:hours:minutes:seconds, such as 00:01:30:00"),
    ("trainer.max_time=00:00:00:00", "trainer.max_time=00:00:00:00"),
    ("trainer.precision=foo", "Precision 'foo' is invalid"),
    ("trainer.precision=16-true", "weights in trainer.precision=16-true cannot be averaged: add callbacks=no_ema"),
    ("trainer=fsdp2 trainer.accelerator=cpu", "sharded weights"),
    ("trainer.gradient_clip_val=-1", "trainer.gradient_clip_val=-1"),
    ("trainer.accumulate_grad_batches=0", "trainer.accumulate_grad_batches=0"),
    ("trainer.check_val_every_n_epoch=0", "trainer.check_val_every_n_epoch=0"),
    ("trainer.log_every_n_steps=0", "trainer.log_every_n_steps=0"),
    ("trainer.limit_train_batches=0", "trainer.limit_train_batches=0"),
    ("trainer.limit_train_batches=1.5", "trainer.limit_train_batches=1.5"),
    ("trainer.limit_val_batches=0", "trainer.limit_val_batches=0"),
    ("+trainer.fast_dev_run=true", "trainer.fast_dev_run keeps no checkpoint"),
    ("+trainer.max_epoch=3", "unexpected keyword argument 'max_epoch'"),
    ("seed=-1", "seed=-1"),
    ("seed=4294967296", "seed=4294967296"),
    ("threads=0", "threads=0"),
    ("checkpoint_every_n_steps=0", "checkpoint_every_n_steps=0"),
    ("test=maybe", "test=maybe"),
    ("task.compile=maybe", "compile=maybe"),
    ("checkpoint_activations=2", "checkpoint_activations=2"),
    ("matmul_precision=foo", "matmul_precision=foo"),
    ("task.label_smoothing=abc", "label_smoothing=abc"),
    ("task.label_smoothing=1.5", "label_smoothing=1.5"),
    ("task.label_smoothing=nan", "label_smoothing=nan"),
    ("monitor.metric=val/f1", "monitor.metric=val/f1 is not measured with data=digits: choose one of val/accuracy"),
    ("monitor.metric=val/auroc", "monitor.metric=val/auroc needs two classes, but digits has 10"),
    ("monitor.mode=maximum", "monitor.mode=maximum must be max"),
    ("monitor.metric=val/loss", "monitor.mode=max must be min"),
    ("callbacks.ema.decay=2", "callbacks.ema.decay=2"),
    ("~callbacks.best", "the first checkpoint callback must have a monitor: keep callbacks.best"),
    ("model.name=gcsa_tinny", "unknown model gcsa_tinny: choose one of"),
    ("+model.widht=3", "widht"),
    ("optimizer.opt=adamm", "unknown optimizer 'adamm'"),
    ("optimizer.lr=0", "optimizer.lr=0"),
    ("optimizer.lr=1e300", "optimizer.lr=1e+300"),
    ("optimizer.lr=inf", "optimizer.lr=inf"),
    ("optimizer.weight_decay=-0.1", "optimizer.weight_decay=-0.1"),
    ("+optimizer.momentum=-1", "optimizer.momentum=-1"),
    ("+optimizer.nesterow=1", "optimizer adamw does not take"),
    ("optimizer.schedule.warmup=2", "optimizer.schedule.warmup=2"),
    ("optimizer.schedule.final=-1", "optimizer.schedule.final=-1"),
    (
        "optimizer.schedule.name=linear",
        "unknown schedule 'linear': choose one of cosine, one_cycle, exponential, constant",
    ),
    ("+optimizer.schedule.peak=1", "unknown option optimizer.schedule.peak: there are name, warmup and final"),
    ("data.name=digitz", "data=digitz must be one of cifar10, digits"),
    ("data.batch_size=0", "data.batch_size=0"),
    ("data.num_workers=-1", "num_workers=-1 must be a whole number from 0 to 512"),
    ("data.limit_train=0", "limit_train=0"),
    ("data.augment.degrees=-5", "augment.degrees=-5"),
    ("data.augment.shift=28", "augment shift=28 must be below the images' 28 pixels a side"),
    ("data.augment.jpeg=101", "augment.jpeg=101"),
    ("data.augment.stain=0.1", "augment stain=0.1 needs images of three channels, not 1"),
    ("+data.augment.wobble=1", "wobble"),
    ("ckpt_path=5", "ckpt_path=5"),
    ("ckpt_path=last", "last.ckpt: give the folder of the run to resume as output_dir=..."),
    ("ckpt_path=nowhere.ckpt", "there is no checkpoint nowhere.ckpt"),
]


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        pytest.fail("data was read")

    monkeypatch.setattr("gcsa.tasks.classification.data.digits.Digits._read", read)


@pytest.mark.parametrize(("override", "message"), ROWS, ids=[row[0] for row in ROWS])
@pytest.mark.usefixtures("no_data")
def test_bad_values(tmp_path: Path, capsys: pytest.CaptureFixture[str], override: str, message: str) -> None:
    with pytest.raises(SystemExit) as end, task_errors(tmp_path):
        train(composed(tmp_path, *TINY, *override.split(" ")), tmp_path)
    printed = capsys.readouterr().err
    assert (end.value.code, printed.count("\n")) == (2, 1)
    assert printed.startswith("error: ")
    assert message in printed
    assert not tmp_path.exists() or list(tmp_path.iterdir()) == []


def test_one_class(tmp_path: Path) -> None:
    (tmp_path / "images/cat").mkdir(parents=True)
    for i in range(30):
        Image.new("RGB", (8, 8), (i, 0, 0)).save(tmp_path / f"images/cat/{i}.png")
    own = ("data=image_folder", f"data.path={tmp_path / 'images'}", "data.image_size=32", "data.in_chans=1")
    with raises("data.one_class"):
        train(composed(tmp_path / "run", *TINY[:2], "trainer.max_epochs=1", *own), tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


def test_test_files_are_opened_before_training(tmp_path: Path) -> None:
    """A damaged image of the test split, which training does not read."""
    for split in ("train", "val", "test"):
        for name in ("cat", "dog"):
            (tmp_path / "images" / split / name).mkdir(parents=True)
            Image.new("L", (32, 32), 90).save(tmp_path / "images" / split / name / "1.png")
    bad = tmp_path / "images/test/dog/1.png"
    bad.write_bytes(bad.read_bytes()[:20])
    small = ("trainer.max_epochs=1", "data.batch_size=2", "logger=none", "threads=1")
    own = ("data=image_folder", f"data.path={tmp_path / 'images'}", "data.image_size=32", "data.in_chans=1")
    run = tmp_path / "run"
    with raises("image.unreadable"):
        train(composed(run, *TINY[:2], *small, *own), run)
    assert not (run / "checkpoints").exists()
