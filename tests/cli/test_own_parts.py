"""The module that docs/own.md shows, by the command beside it, and plug-ins that installed packages offer."""

import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch

import gcsa
from gcsa._utils import plugins
from gcsa.models.registry import MODEL_OPTIONS
from gcsa.tasks.classification.data.base import DATAMODULES
from gcsa.tasks.classification.losses import LOSSES
from gcsa.tasks.classification.module import METRICS
from tests.errors import raises

from .conftest import ROOT, Run

PAGE = (ROOT / "docs/own.md").read_text()


@pytest.fixture
def parts(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """my_parts.py in the current folder; what it registers is forgotten afterwards."""
    for registry in (MODEL_OPTIONS, DATAMODULES, LOSSES, METRICS["class"]):
        for key, value in list(registry.items()):  # setitem restores the whole of what it saw
            monkeypatch.setitem(registry, key, value)  # type: ignore[arg-type]
    Path("my_parts.py").write_text(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0])
    yield
    for registry, key in (
        (MODEL_OPTIONS, "tiny_net"),
        (DATAMODULES, "stripes"),
        (LOSSES, "margin"),
        (METRICS["class"], "f1"),
    ):
        registry.pop(key, None)  # type: ignore[attr-defined]
    sys.modules.pop("my_parts", None)


def test_the_example(run: Run, parts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    command = re.findall(r"```sh\npython train.py (.*?)```", PAGE, re.DOTALL)[0].replace("\\\n", " ").split()
    code, out, err = run("train", *command, "output_dir=run", "trainer.max_epochs=3", "logger=none", "threads=1")
    assert code == 0, err
    assert re.search(r"best val/f1 +1\.0000", out)
    lying = (torch.arange(16) // 2 % 2).view(16, 1).expand(1, 16, 16).float()
    classifier = gcsa.load("run/weights")
    assert [classifier.predict(image).label for image in (lying, lying.mT)] == ["lying", "standing"]
    code, _, err = run("train", *command, "+model.hight=2", "output_dir=other")
    assert (code, "hight" in err, "width" in err) == (2, True, True)


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "No module named 'mended'"), ("1 / 0", "ZeroDivisionError: division by zero"), ("def", "SyntaxError: ")],
)
def test_a_module_that_cannot_be_imported(run: Run, content: str | None, words: str) -> None:
    name = "mended" if content is None else f"broken_{len(content)}"
    if content is not None:
        Path(f"{name}.py").write_text(content)
    code, _, err = run("train", f"imports=[{name}]")
    assert (code, err.startswith(f"error: imports={name} cannot be imported: {words}")) == (2, True), err
    assert not Path("outputs").exists()


def test_plug_ins_of_installed_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "offered_parts.py").write_text(
        "from gcsa.tasks.classification import losses\nlosses.register_loss('offered', None)\n"
    )
    (tmp_path / "broken_parts.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("offered", "broken"):
        entry = EntryPoint(name, f"{name}_parts", plugins.GROUP)
        monkeypatch.setattr(plugins, "entry_points", lambda group, entry=entry: [entry])
        plugins.load_plugins.cache_clear()
        if name == "offered":
            plugins.load_plugins()
            assert LOSSES.pop("offered", 1) is None
        else:
            with raises("plugins"):
                plugins.load_plugins()
    plugins.load_plugins.cache_clear()
