import os
from pathlib import Path

import pytest


@pytest.fixture
def nuclei() -> Path:
    """The folder that holds the real nuclei, or a skip."""
    folder = Path(os.environ.get("GCSA_DATA") or Path(__file__).parents[4].parent / "shared" / "data")
    if not (folder / "nuclei" / "train").is_dir():
        pytest.skip(f"no nuclei in {folder}: set GCSA_DATA to the folder that holds them")
    return folder
