"""Train a classifier: `python train.py model=gcsa_small data=pcam`; every option is in conf/."""

from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from gcsa.training.cli import composition_errors, user_errors


@hydra.main(version_base="1.3", config_path="conf", config_name="train")
def main(cfg: DictConfig) -> float:
    with user_errors():
        from gcsa.training.run import train

        return train(cfg, Path(HydraConfig.get().runtime.output_dir))


if __name__ == "__main__":
    with composition_errors():
        main()
