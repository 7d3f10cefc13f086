"""Checkpoints to resume: damaged ones, those of other models or other options, and what may change."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from gcsa.tasks.classification.data import create_datamodule
from gcsa.tasks.classification.task import Task as Classification
from gcsa.training.checkpoint_io import CONFIG, DATA, check_same_run
from gcsa.training.checks import resolve_checkpoint
from gcsa.training.run import out_of_memory
from tests.errors import raises
from tests.runs import TINY, composed, train


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
    for name, hint in (("best", "/checkpoints/best.ckpt"), ("last", "last")):
        (tmp_path / f"checkpoints/{name}.ckpt").touch()
        with pytest.raises(ValueError, match=f"holds an earlier run: resume it with ckpt_path=.*{hint}, or"):
            train(composed(tmp_path, *TINY), tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of one step."""
    folder = tmp_path_factory.mktemp("finished")
    train(composed(folder, *TINY, *SHORT), folder)
    return folder


SHORT = ("data.limit_train=32", "trainer.max_epochs=1")


def resume(finished: Path, folder: Path, *overrides: str) -> float:
    last = finished / "checkpoints/last.ckpt"
    return train(composed(folder, *TINY, *SHORT, f"ckpt_path={last}", *overrides), folder)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["optimizer.lr=0.5"], ["optimizer.lr=0.5 (it was 0.002)"]),
        (["optimizer=sgd"], ["optimizer.momentum=0.9 (it was not given)", "optimizer.opt=sgd (it was adamw)"]),
        (["callbacks=no_ema"], ["callbacks.ema._target_=not given (it was gcsa.training.callbacks.EMA)"]),
        (["data.batch_size=16", "seed=1"], ["data.batch_size=16 (it was 32)", "seed=1 (it was 0)"]),
        (["monitor.metric=val/loss", "monitor.mode=min"], ["monitor.mode=min (it was max)"]),
        (["model.drop_rate=0.3"], ["model.drop_rate=0.3 (it was 0.2)"]),
        (["trainer.gradient_clip_val=null"], ["trainer.gradient_clip_val=null (it was 1.0)"]),
    ],
)
def test_other_options_are_not_mixed(finished: Path, tmp_path: Path, overrides: list[str], words: list[str]) -> None:
    with raises("checkpoint.other_run") as error:
        resume(finished, tmp_path, *overrides)
    assert all(word in str(error.value) for word in words)
    assert list(tmp_path.iterdir()) == []


def test_other_data_are_not_mixed(finished: Path, tmp_path: Path) -> None:
    stored: dict[str, Any] = torch.load(finished / "checkpoints/last.ckpt", weights_only=True)
    assert [*stored[DATA]] == ["names", "train", "val"]
    stored[DATA]["train"][1] = "0 0"
    torch.save(stored, tmp_path / "other.ckpt")
    with raises("checkpoint.other_data"):
        train(composed(tmp_path / "run", *TINY, *SHORT, f"ckpt_path={tmp_path / 'other.ckpt'}"), tmp_path / "run")


def test_options_of_a_later_version_that_change_nothing(finished: Path, tmp_path: Path) -> None:
    stored: dict[str, Any] = torch.load(finished / "checkpoints/last.ckpt", weights_only=True)
    config = copy.deepcopy(stored[CONFIG])
    now = {**config, "task": {**config["task"], "new": 0.0, "newer": None, "newest": "mean"}}
    check_same_run(finished / "checkpoints/last.ckpt", now, {"task.newest": "mean"})
    now["task"]["new"] = 0.1
    with raises("checkpoint.other_run"):
        check_same_run(finished / "checkpoints/last.ckpt", now, {"task.newest": "mean"})
    with raises("checkpoint.other_run"):
        check_same_run(finished / "checkpoints/last.ckpt", {**config, "newest": "mean"}, {})


@pytest.mark.filterwarnings("ignore:The dirpath has changed")  # Lightning, of the best checkpoint's folder
def test_what_may_change(finished: Path, tmp_path: Path) -> None:
    allowed = ("trainer.max_epochs=2", "trainer.log_every_n_steps=3", "logger=csv", "threads=2", "data.root=elsewhere")
    assert resume(finished, tmp_path, *allowed, "checkpoint_every_n_steps=5", "matmul_precision=highest") > 0
    assert torch.load(tmp_path / "checkpoints/last.ckpt", weights_only=True)["global_step"] == 2


def test_a_checkpoint_that_does_not_say_its_options(finished: Path, tmp_path: Path) -> None:
    stored: dict[str, Any] = torch.load(finished / "checkpoints/last.ckpt", weights_only=True)
    del stored[CONFIG]
    torch.save(stored, tmp_path / "old.ckpt")
    with raises("checkpoint.no_config"):
        train(composed(tmp_path, *TINY, *SHORT, f"ckpt_path={tmp_path / 'old.ckpt'}"), tmp_path)


def test_the_configuration_is_kept_without_its_folder(finished: Path) -> None:
    stored = torch.load(finished / "checkpoints/best.ckpt", weights_only=True)[CONFIG]
    assert stored == json.loads((finished / "results.json").read_text())["config"]
    assert stored["output_dir"] == "."
    assert stored["callbacks"]["best"]["dirpath"] == "./checkpoints"
    assert str(finished) not in json.dumps(stored)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            RuntimeError(
                "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8000000000 bytes."
            ),
            "GB",
        ),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has"), "needs about 2.1 GB"),
        (MemoryError(), "not enough memory"),
        (RuntimeError("shapes do not fit"), ""),
    ],
)
def test_memory_that_lacks_is_said(error: Exception, words: str) -> None:
    assert words in out_of_memory(error)
    assert bool(out_of_memory(error)) == bool(words)


def test_what_a_killed_process_left_half_written_goes(tmp_path: Path) -> None:
    (tmp_path / "checkpoints/.gcsa-1").mkdir(parents=True)
    (tmp_path / "checkpoints/.gcsa-1/last.ckpt").touch()
    train(composed(tmp_path, *TINY, *SHORT), tmp_path)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["best.ckpt", "last.ckpt"]
