"""Measure a model: `gcsa evaluate model=.../best.ckpt data=rotmnist`; every option is in conf/evaluate.yaml."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from gcsa._utils.memory import keep_freed_memory
from gcsa.cli.composition import check_keys, composition_errors, conf_folder, task_errors


def offer_configs(folder: Path) -> None:
    """Shows Hydra evaluate.yaml, data/ and the names of task/ of `folder` only: where it sees conf/model, `model=` cannot be a path."""
    for file in folder.glob("task/*.yaml"):
        ConfigStore.instance().store(name=file.stem, node={"name": file.stem}, group="task")
    for file in (folder / "evaluate.yaml", *folder.glob("data/**/*.yaml")):
        group = file.parent.relative_to(folder).as_posix()
        ConfigStore.instance().store(name=file.stem, node=OmegaConf.load(file), group=None if group == "." else group)


@hydra.main(version_base="1.3", config_path=None, config_name="evaluate")
def run(cfg: DictConfig) -> None:
    output_dir = Path(HydraConfig.get().runtime.output_dir)
    with task_errors(output_dir):
        check_keys(cfg, "evaluate")
        from gcsa._utils.atomic import write_json
        from gcsa._utils.plugins import import_parts
        from gcsa.tasks import get_task
        from gcsa.training.results import git_commit, machine

        config: dict[str, Any] = OmegaConf.to_container(cfg, resolve=True)  # type: ignore[assignment]
        import_parts(cfg.imports)
        content = get_task(config["task"]["name"]).evaluate(config, output_dir)
        content |= {"commit": git_commit(), "machine": machine(), "config": config}
        print(write_json(output_dir / "evaluation.json", content))


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns 0. Raises SystemExit: 2 for an error that the user can mend, 1 for any other."""
    if argv is not None:  # Hydra reads no other
        sys.argv[1:] = argv
    keep_freed_memory()
    with composition_errors():
        offer_configs(conf_folder())
        run()
    return 0
