"""The notebooks run from the first cell to the last; a figure or a number in them is what the library does today."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
EPOCHS = ("max_epochs=12", "max_epochs=1")
"""Of a training that takes minutes, here and there; what the notebook asserts of it holds after any number."""


@pytest.mark.filterwarnings("ignore")  # what Jupyter's own event loop warns of is not ours
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    shown = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.outputs]
    assert shown, "a code host and the site show the outputs that are stored: run it, and keep them"
    for cell in notebook.cells:
        cell.source = cell.source.replace(*EPOCHS)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
