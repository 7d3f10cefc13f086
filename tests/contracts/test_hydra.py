"""Every choice in conf/ composes and, where that is cheap, builds; wrong ones fail with the choices in the message."""

import copy
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import timm
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf, open_dict

from gcsa._utils.options import explain as declared_options
from gcsa.models.create import create_model, options_of
from gcsa.tasks import get_task, list_tasks
from gcsa.tasks.classification.data import list_datamodules
from gcsa.tasks.classification.task import Task as Classification
from gcsa.tasks.classification.teacher import TeacherOptions
from gcsa.tasks.recognition.ctc import CTCRecognizer
from gcsa.tasks.segmentation import Segmenter
from gcsa.tasks.segmentation.network import SEGMENTERS
from gcsa.tasks.segmentation.task import MODULES, Task as SegmentationTask
from gcsa.training.schedule import make_schedule

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"
NEEDS_A_VALUE = {
    "timm": "model.name=resnet18",
    "image_folder": "data.path=/images",
    "mask_folder": "data.path=/images",
    "own": "data.name=digits",
    "table": "data.path=/images.csv",
    "unlabelled": "data.path=/images",
    "multilabel": "data.path=/images.csv",
    "regression": "data.path=/images.csv",
    "lora": "adapter.base=base.ckpt",
    "full": "adapter.base=base.ckpt",
    "nuclei_few": "data.path=/images",
    "imagenet_pyramid_small": "data.path=/images",
}
"""Choices with a key that only the user can fill."""


def choices(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def composed(*overrides: str) -> DictConfig:
    """conf/train.yaml, of which every value can be resolved."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("train", list(overrides), return_hydra_config=True)
    with open_dict(cfg):
        cfg.hydra.runtime.output_dir = "/tmp/not-written"
    HydraConfig.instance().set_config(copy.deepcopy(cfg))  # which makes it read-only
    OmegaConf.to_container(OmegaConf.masked_copy(cfg, cfg.keys() - {"hydra"}), resolve=True, throw_on_missing=True)
    return cfg


def groups() -> Iterator[str]:
    for folder in sorted(path for path in CONF.rglob("*") if path.is_dir() and path.name != "shared"):
        yield folder.relative_to(CONF).as_posix()


BUILT_BELOW = {"model", "optimizer/schedule", "callbacks", "logger", "trainer"}
"""Groups of which a test composes every choice, and builds what it describes."""


@pytest.mark.parametrize(
    ("group", "name"), [(group, name) for group in groups() if group not in BUILT_BELOW for name in choices(group)]
)
def test_every_choice_composes(group: str, name: str) -> None:
    composed(f"{group}={name}", *filter(None, [NEEDS_A_VALUE.get(name)]))


@pytest.mark.parametrize("name", choices("model"))
def test_models_exist_and_take_their_options(name: str) -> None:
    options: dict[str, Any] = dict(composed(f"model={name}", *filter(None, [NEEDS_A_VALUE.get(name)])).model)
    task = options.pop("task", "classification")
    options.pop("pretrained", None)  # of the run, not of the network
    if task == "recognition":
        given = {key: value for key, value in options.items() if value is not None}
        assert CTCRecognizer("ab", given.pop("name"), **given).rows >= 1
        return
    if task == "segmentation":
        given = {key: value for key, value in options.items() if value is not None}
        assert Segmenter(**given, in_chans=1).name == name
        return
    assert timm.is_model(options["name"])
    if "pyramid" in name or name == "gcsa_base":
        return  # large: the families are built by their smaller members
    if options.get("img_size") == "auto":
        options["img_size"] = 32
    create_model(num_classes=2, in_chans=1, **OmegaConf.to_container(OmegaConf.create(options)))


DECLARED = {
    "shared/gcsa": "gcsa_tiny",
    "shared/isotropic": "gcsa_tiny",
    "shared/pyramid": "gcsa_pyramid_tiny",
    "shared/gcnn": "gcnn_tiny",
    "shared/gsa": "gsa_tiny",
    **{name: name for name in ("performer_tiny", "linformer_tiny", "routing_transformer_tiny")},
    "alexnet": "alexnet_small",
    "vgg16": "vgg16_small",
}
"""A file of conf/model and a model that takes its options."""


@pytest.mark.parametrize("file", DECLARED)
def test_model_options_are_commented_as_they_are_declared(file: str) -> None:
    declared = declared_options(options_of(DECLARED[file]))
    lines = re.findall(r"^(\w+): (\S+)  # (.*)$", (CONF / f"model/{file}.yaml").read_text(), re.MULTILINE)
    options = {key: comment for key, value, comment in lines if key != "name" and value != "auto"}
    assert options == {key: declared[key].meaning for key in options}
    assert options


@pytest.mark.parametrize("task", list_tasks())
def test_options_of_a_task_are_those_it_declares(task: str) -> None:
    """The keys of conf/task, their values and their comments."""
    text = (CONF / f"task/{task}.yaml").read_text()
    declared = declared_options(get_task(task).options)
    comments = dict(re.findall(r"^ *(\w+):(?: \S+)?  # (.*)$", text, re.MULTILINE))
    values = yaml.safe_load(text)
    assert (values.pop("name"), comments.pop("name")) == (task, "the package in gcsa/tasks")
    teacher = declared_options(TeacherOptions) if "teacher" in declared else {}
    assert values.pop("teacher", {}) == {key: option.default for key, option in teacher.items()}
    assert values == {key: option.default for key, option in declared.items() if key != "teacher"}
    assert comments == {key: option.meaning for key, option in {**declared, **teacher}.items()}


def test_there_is_a_choice_for_every_data_module() -> None:
    assert choices("data") == sorted([*list_datamodules(), "lines", "own", *MODULES])


def test_there_is_a_choice_for_every_segmenter() -> None:
    assert set(SEGMENTERS) <= set(choices("model"))


@pytest.mark.parametrize("name", [name for name in list_datamodules() if name not in NEEDS_A_VALUE])
def test_data_modules_take_their_options(name: str) -> None:
    cfg = composed(f"data={name}")
    data = Classification().build_data(
        {"seed": 0, "model": {}, **{key: OmegaConf.to_container(cfg[key]) for key in ("task", "data", "monitor")}}
    )
    assert data.num_classes > 1


@pytest.mark.parametrize("choice", ["nuclei", "nuclei_masks", *MODULES])
@pytest.mark.parametrize("model", ["gcsa_unet_tiny", "smp_unet_resnet18"])
def test_segmentation_is_built_from_every_choice(choice: str, model: str) -> None:
    """Before any picture is read; what an experiment or a model leaves open has a default that works."""
    output, data = ("classes", "nuclei") if choice.endswith("masks") else ("instances", choice)
    overrides = (f"data={data}", f"model={model}", f"model.output={output}", *filter(None, [NEEDS_A_VALUE.get(data)]))
    experiment = f"experiment={choice}" if choice in choices("experiment") else "monitor.metric=val/dice"
    cfg: Any = OmegaConf.to_container(composed(experiment, *overrides))
    built = SegmentationTask()
    module = built.build_module(cfg, built.build_data(cfg))
    assert (module.model.name, module.model.output) == (model, output)
    assert cfg["monitor"]["metric"] in built.monitored


@pytest.mark.parametrize("name", choices("optimizer/schedule"))
def test_schedules(name: str) -> None:
    schedule = OmegaConf.to_container(composed(f"optimizer/schedule={name}").optimizer.schedule)
    assert make_schedule(total=10, **schedule)(0) > 0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("group", "name"), [(group, name) for group in ("callbacks", "logger") for name in choices(group)]
)
def test_callbacks_and_loggers(group: str, name: str, tmp_path: Path) -> None:
    cfg = composed(f"{group}={name}")
    cfg.output_dir = str(tmp_path)
    for node in cfg[group].values():
        assert isinstance(instantiate(node), pl.Callback | pl.loggers.Logger)


STRATEGIES = {
    "cpu": ("SingleDeviceStrategy", None),
    "gpu": ("SingleDeviceStrategy", None),
    "ddp": ("DDPStrategy", "_MultiProcessingLauncher"),
    "ddp_external": ("DDPStrategy", "_SubprocessScriptLauncher"),
    "fsdp2": ("ModelParallelStrategy", "_SubprocessScriptLauncher"),
}
"""How the processes of each choice work together, and who starts them."""


@pytest.mark.parametrize("name", choices("trainer"))
def test_trainers(name: str) -> None:
    """Each is built on one CPU, whatever this machine has."""
    cfg = composed(f"trainer={name}", "trainer.accelerator=cpu", "trainer.devices=1")
    strategy = instantiate(cfg.trainer, logger=False).strategy
    launcher = strategy.launcher and type(strategy.launcher).__name__
    assert (type(strategy).__name__, launcher) == STRATEGIES[name]


@pytest.mark.parametrize(("mode", "direction"), [("max", "maximize"), ("min", "minimize")])
def test_a_search_goes_where_the_monitored_metric_is_better(mode: str, direction: str) -> None:
    assert composed("sweep=optuna", f"monitor.mode={mode}").hydra.sweeper.direction == direction
    assert composed("sweep=optuna", "experiment=ocr_ctc").hydra.sweeper.direction == "minimize"


def test_every_key_has_a_comment() -> None:
    for path in CONF.rglob("*.yaml"):
        lines = path.read_text().splitlines()
        assert any(line.startswith("# ") for line in lines[:2]), f"{path} does not begin with what it is for"
        for line in lines:
            if re.match(r"\s*(- )?[\w./ ]+:\s+\S", line) and "_target_" not in line:
                assert "  # " in line, f"{path}: {line!r} has no comment"


def test_the_slurm_script_asks_for_what_the_trainer_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run: submitit writes what it would hand to sbatch; it only looks whether there is an srun."""
    import submitit

    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\n")
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    cfg = composed("sweep=slurm", "trainer=ddp_external", "trainer.num_nodes=2", "hydra.launcher.partition=gpu")
    cfg.hydra.launcher.name = "job"
    launcher = OmegaConf.to_container(cfg.hydra.launcher, resolve=True)
    assert isinstance(launcher, dict)
    assert launcher["_target_"].endswith("SlurmLauncher")
    executor = submitit.AutoExecutor(tmp_path / "jobs", cluster="slurm")
    shared = ("nodes", "tasks_per_node", "gpus_per_node", "cpus_per_task", "timeout_min")
    executor.update_parameters(slurm_partition=launcher["partition"], **{key: launcher[key] for key in shared})
    script = executor._executor._make_submission_file_text("python train.py", "id")
    for line in ("nodes=2", "ntasks-per-node=8", "gpus-per-node=8", "cpus-per-task=12", "partition=gpu", "time=1440"):
        assert f"#SBATCH --{line}\n" in script


@pytest.mark.slow  # Hydra starts, and trains, several small runs one after the other
@pytest.mark.parametrize(
    "sweep",
    [
        ["seed=1,2"],
        ["sweep=joblib", "seed=1,2"],
        ["sweep=optuna", "hydra.sweeper.n_trials=2", "monitor.metric=val/loss", "monitor.mode=min"],
        ["sweep=slurm", "hydra/launcher=submitit_local", "hydra.launcher.gpus_per_node=null", "seed=1,2"],
    ],
)
def test_multirun(sweep: list[str], tmp_path: Path) -> None:
    small = ["model=timm", "model.name=test_efficientnet", "data.limit_train=64", "trainer.max_epochs=1", "test=false"]
    command = [sys.executable, "train.py", "-m", *sweep, *small, f"output_dir={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    results = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("*/results.json"))]
    assert len(results) == 2
    if "monitor.mode=min" in sweep:
        best = yaml.safe_load((tmp_path / "optimization_results.yaml").read_text())
        assert best["best_value"] == pytest.approx(min(result["results"]["val/loss"] for result in results))
