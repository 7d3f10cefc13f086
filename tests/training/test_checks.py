"""What cannot work is refused in one sentence before any data is read."""

from pathlib import Path

import pytest
import torch

from gcsa.data import create_datamodule
from gcsa.tasks.classification import Classification
from gcsa.training.checks import resolve_checkpoint
from tests.runs import TINY, composed, train


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        pytest.fail("data was read")

    monkeypatch.setattr("gcsa.data.sets.digits.Digits._read", read)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.batch_size=0", r"data\.batch_size must be a whole number above 0, got 0"),
        ("trainer.devices=1000", r"trainer\.devices=1000, but this machine has \d+ CPU cores"),
        ("trainer.devices=0", r"trainer\.devices must be a whole number above 0, got 0"),
        ("trainer.accelerator=tpu", r"must be cpu, gpu or auto, got 'tpu'"),
        ("trainer.max_epochs=-2", r"trainer\.max_epochs must be a whole number above 0, got -2"),
        ("seed=-1", r"seed must be a whole number, 0 or more, got -1"),
        ("threads=0", r"threads must be a whole number above 0, got 0"),
        ("label_smoothing=1.5", r"label_smoothing must be at least 0 and below 1, got 1\.5"),
        (
            "monitor.metric=val/f1",
            r"monitor\.metric=val/f1 is not measured with data=digits: choose one of val/accuracy",
        ),
        ("monitor.metric=val/auroc", r"needs two classes, but digits has 10"),
        ("monitor.mode=up", r"monitor\.mode must be max or min, got 'up'"),
        ("model.name=gcsa_tinny", r"unknown model 'gcsa_tinny': choose one of .*gcsa_tiny"),
        ("+model.widht=3", r"unknown model option 'widht': did you mean width"),
        ("optimizer.opt=adamm", r"unknown optimizer 'adamm': .*such as adamw?"),
        ("optimizer.lr=-1", r"[Ll]earning rate"),
        ("optimizer.lr=fast", r"optimizer adamw does not take .*fast"),
        ("optimizer.schedule.warmup=2", r"warmup is a fraction between 0 and 1, got 2"),
        ("data.name=digitz", r"unknown data set 'digitz': choose one of digits"),
        ("data.limit_train=0", r"limit_train=0"),
        ("data.augment.degrees=-5", r"augment degrees=-5"),
        ("+data.augment.wobble=1", r"unknown augment option 'wobble'"),
        ("ckpt_path=last", r"there is no checkpoint .*last\.ckpt: give the folder of the run"),
        ("ckpt_path=nowhere.ckpt", r"there is no checkpoint nowhere\.ckpt"),
    ],
)
def test_bad_values(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
        train(composed(tmp_path, *TINY, override), tmp_path)
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.group=x4", r"group='x4' must be c or d and a number"),
        ("model.attention=global", r"attention='global' must be one of spatial, group, linear"),
        ("model.fields=7", r"heads=\d+ does not divide fields=7"),
        ("model.stem_strides=[2,2,2]", r"28 x 28 .*multiples of 8; resize 28 to 24 or 32"),
    ],
)
def test_bad_models(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train(composed(tmp_path, "model=gcsa_tiny", *TINY[3:], override), tmp_path)


def test_bad_checkpoints(tmp_path: Path) -> None:
    cfg = composed(tmp_path, *TINY)
    model = Classification().build_module(cfg, create_datamodule("digits"))
    path = tmp_path / "other.ckpt"

    def message() -> str:
        with pytest.raises(ValueError, match=r"other\.ckpt") as error:
            resolve_checkpoint(str(path), tmp_path, model)
        return str(error.value)

    torch.save({"state_dict": model.state_dict()}, path)
    assert resolve_checkpoint(str(path), tmp_path, model) == path
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"hello"):
        path.write_bytes(damaged)
        assert "is damaged or not a checkpoint of train.py" in message()
    torch.save({"state_dict": {**model.state_dict(), "model.bn1.weight": torch.zeros(7)}}, path)
    assert "holds another architecture: its model.bn1.weight is [7], the model's is" in message()


def test_an_earlier_run_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/best.ckpt").touch()
    with pytest.raises(ValueError, match="holds an earlier run: resume it with ckpt_path=last"):
        train(composed(tmp_path, *TINY), tmp_path)
