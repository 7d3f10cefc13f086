"""Train a model: `gcsa train model=gcsa_small data=pcam`; every option is in conf/."""

import sys
from collections.abc import Sequence
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from gcsa._utils.memory import keep_freed_memory
from gcsa.cli.composition import check_keys, composition_errors, conf_folder, task_errors


@hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name="train")
def run(cfg: DictConfig) -> float:
    output_dir = Path(HydraConfig.get().runtime.output_dir)
    with task_errors(output_dir):
        check_keys(cfg, "train")
        from gcsa._utils.plugins import import_parts
        from gcsa.tasks import get_task
        from gcsa.training.run import train

        import_parts(cfg.imports)
        return train(get_task(cfg.task.name), cfg, output_dir)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns 0. Raises SystemExit: 2 for an error that the user can mend, 1 for any other."""
    if argv is not None:  # Hydra reads no other
        sys.argv[1:] = argv
    keep_freed_memory()
    with composition_errors():
        run()
    return 0
