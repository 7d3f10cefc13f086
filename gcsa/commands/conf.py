"""Where the configurations are: conf/ of a checkout, or gcsa/conf of an installed wheel."""

from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def conf_folder() -> Path:
    """The folder of train.yaml. Raises FileNotFoundError where there is none, as in a broken installation."""
    for folder in (PACKAGE.parent / "conf", PACKAGE / "conf"):
        if (folder / "train.yaml").is_file():
            return folder
    raise FileNotFoundError(f"there is no conf/train.yaml beside or in {PACKAGE}: install gcsa again")
