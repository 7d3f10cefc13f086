"""Where the configurations are."""

from pathlib import Path

from gcsa.published import shipped


def conf_folder() -> Path:
    """The folder of train.yaml. Raises FileNotFoundError where there is none, as in a broken installation."""
    folder = shipped("conf")
    if not (folder / "train.yaml").is_file():
        raise FileNotFoundError(f"there is no {folder / 'train.yaml'}: install gcsa again")
    return folder
