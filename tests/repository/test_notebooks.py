"""The notebooks run from the first cell to the last; a figure or a number in them is what the library does today."""

import json
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pytest
import torch

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
SHORTER = {
    "batch_size=64": "batch_size=8, limit_train=32",
    "image = images[:1]": "image = images[:1, :, 6:22, 6:22]",
    "max_epochs=12": "max_epochs=1",
    'model=dict(name="gcsa_tiny")': 'model=dict(name="gcsa_tiny", fields=4, depth=1, num_heads=1)',
    "list(data.val_dataloader()), angles=range(0, 360, 15)": "list(data.val_dataloader())[:4], angles=range(0, 360, 90)",
    "in zip(unseen, after):": "in zip(unseen[:2], after):",
    "STEPS = 60": "STEPS = 15",
    "STEPS = 24": "STEPS = 8",
    "EPOCHS = 12": "EPOCHS = 2",
    '.glob("*.png"))[:3]': '.glob("*.png"))[:1]',
}
"""What takes long, and its stand-in here; what the notebooks assert holds for both."""


@pytest.mark.filterwarnings("ignore")  # what a reader of the notebook would see as text below a cell
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert any(cell["outputs"] for cell in cells), "a code host and the site show the outputs: run it, and keep them"
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    namespace = {"__name__": "__main__"}
    with torch.random.fork_rng(devices=[]):
        for number, cell in enumerate(cells, 1):
            source = "".join(cell["source"])
            for long, short in SHORTER.items():
                source = source.replace(long, short)
            exec(compile(source, f"{path.name}, cell {number}", "exec"), namespace)
    plt.close("all")


def test_each_stand_in_is_in_a_notebook() -> None:
    code = "".join("".join(cell["source"]) for path in NOTEBOOKS for cell in json.loads(path.read_text())["cells"])
    assert [long for long in SHORTER if long not in code] == []
