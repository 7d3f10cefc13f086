"""Every block of code in the README and on the site runs: Python as it stands, commands with small files in the place of a user's.

Trainings and evaluations are composed, not run: what they do is tested elsewhere, and here it is their options that could go stale.
"""

import inspect
import re
import shlex
import shutil
from collections.abc import Callable
from functools import partial
from importlib.metadata import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import tifffile
import timm
import torch
from hydra import compose, initialize_config_dir
from PIL import Image

from gcsa.cli import adapt, audit, classify, demo, embed, export, orient, segment, transcribe
from gcsa.tasks.recognition.data.typeset import set_lines
from gcsa.weights import save_classifier
from tests.export.small import recognizer
from tests.images.slide_files import halved, tissue_picture, write_slide

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
OWN = "docs/own.md"
"""A module, which tests/cli/test_own_parts.py imports."""
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
SERIF = Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSerif.ttf"
STAND_INS = {
    "path/to/model.safetensors": "weights/gcsa_tiny.rotmnist/model.safetensors",
    "local-dir:outputs/.../weights": "local-dir:weights/gcsa_tiny.rotmnist",
    "my_net.onnx": "my_net:network",
    "outputs/.../adapter": "weights/gcsa_ocr_tiny.print.de19",
    "gcsa_ocr_tiny.print my_adapter": "gcsa_ocr_tiny.print weights/gcsa_ocr_tiny.print.de19",
    "weights/gcsa_tiny.rotmnist --format": "small_model --format",  # the README has the whole one exported
    "weights/gcsa_ocr_tiny.fr17 --format onnx-int8 --any-size --images my_lines/": (
        "small_reader --format onnx-int8 --any-size --images many_lines/"
    ),
}
"""What a page names of a user's, and what is at hand."""
PAGE_XML = """<PcGts xmlns="http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15"><Page imageFilename="line.png">
<TextRegion><TextLine id="a"><Coords points="0,0 {w},0 {w},{h} 0,{h}"/></TextLine></TextRegion></Page></PcGts>"""

Main = Callable[[list[str]], int]
COMMANDS: dict[str, Main] = {
    "segment": segment.main,
    "transcribe": transcribe.main,
    "classify": classify.main,
    "orient": orient.main,
    "embed": embed.main,
    "audit": lambda arguments: audit.main([*arguments, "--angles", "8"]),  # of 16
    "export": export.main,
}
SEEN: set[tuple[str, ...]] = set()
"""What ran without an error: a command that stands on several pages is run once."""


def blocks(page: str, *languages: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    for name, stand_in in STAND_INS.items():
        text = text.replace(name, stand_in)
    return [code for language, code in BLOCK.findall(text) if language in languages]


def started(words: list[str]) -> tuple[str, list[str]]:
    """The command of gcsa in the words of a line, and its arguments; an empty one for other programs."""
    if "gcsa" in words:
        _, command, *arguments = words[words.index("gcsa") :]
        return command, arguments
    return ("train", words[words.index("train.py") + 1 :]) if "train.py" in words else ("", [])


@pytest.fixture(scope="module")
def furniture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds what the pages name: pictures, lines of print, a page, and the published weights."""
    desk = tmp_path_factory.mktemp("furniture")
    for folder in ("weights", "tests/stored"):
        shutil.copytree(ROOT / folder, desk / folder)  # no link: a page's example writes where its names say
    for folder in ("stacks", "images", "patches", "slides", "more_lines", "my_lines", "many_lines", "volume", "scans"):
        (desk / folder).mkdir()
    picture = Image.open(ROOT / "tests/stored/nuclei.png").convert("RGB").crop((0, 0, 96, 96))
    picture.save(desk / "image.tif")
    stack = np.broadcast_to(np.asarray(picture.convert("L")), (3, 2, 96, 96))
    metadata = {"axes": "ZCYX", "Channel": {"Name": ["DAPI", "GFP"]}}
    tifffile.imwrite(desk / "stacks/a.ome.tif", stack, ome=True, photometric="minisblack", metadata=metadata)
    Image.open(ROOT / "tests/stored/tissue.png").crop((0, 0, 96, 96)).save(desk / "patch.png")
    for folder in ("images", "patches"):
        picture.save(desk / folder / "other.png")
        picture.rotate(180).save(desk / folder / "third.png")
    write_slide(desk / "slides/slide.tif", halved(tissue_picture(500, 500), 1))
    lines = [image for _, image in set_lines([f"ligne {i}" for i in range(20)], [SERIF], seed=0)]
    lines[0].save(desk / "scans/page.png")
    sheet = Image.new("L", (800, 600), 235)
    for i, line in enumerate(lines[:5]):
        sheet.paste(line.reduce(2), (100, 80 + 90 * i))
    sheet.save(desk / "page.jpg")
    for folder, count in {"more_lines": 2, "my_lines": 2, "many_lines": 20}.items():
        for i, image in enumerate(lines[:count]):
            image.save(desk / folder / f"{i:05}.png")
    (desk / "my_net.py").write_text("def network(images):\n    return images[..., 0, 0]\n")
    (desk / "my_map.py").write_text("def see(images):\n    return images[:, :2] - images.cumsum(3)[:, :2] / 50\n")
    torch.manual_seed(0)  # of some weights, int8 differs by more than gcsa export allows
    model = timm.create_model("gcsa_tiny", in_chans=1, group="c4", fields=4, depth=1)
    save_classifier(model, desk / "small_model", input_size=(1, 28, 28))
    recognizer().save_pretrained(desk / "small_reader")
    for folder in (".", "volume"):
        lines[0].save(desk / folder / "line.png")
        page = PAGE_XML.format(w=lines[0].width - 1, h=lines[0].height - 1)
        (desk / folder / "page.xml").write_text(page)
    return desk


@pytest.fixture
def desk(furniture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder is a copy of `furniture`."""
    shutil.copytree(furniture, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


@pytest.mark.filterwarnings("ignore")  # of other people's libraries, at their own import
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python", "py") and page != OWN])
@pytest.mark.usefixtures("desk")
def test_python_runs(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "features.h5" in "".join(blocks(page, "python")):
        assert embed.main(["gcsa_pooled_small.pcam", "patches/", "--output", "features.h5"]) == 0
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))  # compiling takes a minute
    # tests/integrations/test_lightly_train.py trains.
    if page.endswith("integrations.md") and find_spec("lightly_train"):
        import lightly_train

        monkeypatch.setattr(lightly_train, "pretrain", inspect.signature(lightly_train.pretrain).bind)
    known: dict[str, Any] = {
        "model": timm.create_model("gcsa_tiny", in_chans=3).eval(),
        "base_model": timm.create_model("gcsa_tiny", in_chans=3),
        "images": torch.randn(2, 3, 64, 64),
    }
    if page.endswith("export.md"):
        known["images"] = torch.randn(2, 3, 28, 28)
    for code in blocks(page, "python", "py"):
        if not all(map(find_spec, re.findall(r"^(?:from|import) (\w+)", code, re.M))):
            continue  # a framework of an environment of its own: tests/integrations and benchmarks/results/integrations
        exec(compile(code, page, "exec"), known)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "sh")])
@pytest.mark.usefixtures("desk")
def test_commands_are_what_they_were(page: str, capfd: pytest.CaptureFixture[str]) -> None:
    extras = metadata("gcsa-vit").get_all("Provides-Extra") or []
    ours = (ROOT / ".ci/run").read_text()
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line.partition(" > ")[0], comments=True)
            script, arguments = started(words)
            if script in COMMANDS:
                missing = "pdf" in arguments and not find_spec("ocrmypdf")  # tests/tasks/recognition/test_pdf.py
                if not missing and (script, *arguments) not in SEEN:
                    assert COMMANDS[script](arguments) == 0, capfd.readouterr().err
                    SEEN.add((script, *arguments))
            elif script in ("train", "evaluate"):
                options = [word for word in arguments if not word.startswith(("-", "hydra.")) and "sweep=" not in word]
                if script == "evaluate":  # of which these are values, not choices in conf/
                    options = [word for word in options if not word.startswith(("model=", "adapter="))]
                if "-m" in arguments:
                    options = [word.partition(",")[0] for word in options]
                with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
                    compose(script, options)
            elif words[:1] in (["kraken"], ["ketos"]):
                assert {"ocr", "train", "test"} & set(words), "tests/tasks/recognition/test_kraken.py runs it"
            elif words[:1] == ["ocrmypdf"]:
                assert "gcsa.integrations.ocrmypdf" in words, "tests/integrations/test_ocrmypdf.py runs it"
            elif script in ("demo", "adapt"):
                with pytest.raises(SystemExit, match="0"):
                    {"demo": demo.main, "adapt": adapt.main}[script]([*arguments, "--help"])
            elif "pytest" in words:
                assert "uv run pytest" in ours
            elif words[:2] == ["pip", "install"]:
                names = set(re.findall(r"\.\[(\w+)\]", line))
                assert names <= set(extras)
                assert names or "uv" in words or words[2].startswith(("gcsa", "."))
            else:
                raise AssertionError(f"{page}: nothing here runs {line!r}")
