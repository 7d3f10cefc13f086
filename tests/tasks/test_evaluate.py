"""gcsa evaluate of recognisers and segmenters: on the texts and labels that the model itself finds, everything is right."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tifffile
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from PIL import Image

from gcsa.tasks import get_task, load
from tests.errors import raises

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "tests" / "stored"
READER, SEGMENTER = "gcsa_ocr_tiny.fr17", "gcsa_unet_tiny.nuclei"


def evaluated(folder: Path, model: str, *overrides: str, **changes: Any) -> dict[str, Any]:
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        composed = compose("evaluate", ["threads=1", *overrides, f"data.path={folder}"])
        config: Any = OmegaConf.to_container(composed)
    config |= {"model": model, **changes}
    content = get_task(config["task"]["name"]).evaluate(config, folder)
    return json.loads(json.dumps(content))


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three lines, without splits."""
    folder = tmp_path_factory.mktemp("lines")
    read = json.loads((IMAGES / "expected.json").read_text(encoding="utf-8"))[READER]
    for name in ("fr17_1.png", "fr17_2.png", "fr17_3.png"):
        source = name if name in read else "fr17_1.png"
        shutil.copy(IMAGES / source, folder / name)
        (folder / name).with_suffix(".gt.txt").write_text(read[source]["text"], encoding="utf-8")
    return folder


def test_lines(lines: Path) -> None:
    found = evaluated(lines, READER, "data=lines", "split=all")
    rates = found["results"]
    assert (found["lines"], rates["cer"], rates["wer"], rates["cer_any"], rates["same_when_rotated"]) == (3, 0, 0, 0, 1)
    assert evaluated(lines, READER, "data=lines")["lines"] == 1, "a tenth tests where nothing says which"
    assert evaluated(lines, READER, "data=lines", "split=all", "limit=2")["lines"] == 2
    (lines / "fr17_1.gt.txt").write_text("x" * 50)
    assert evaluated(lines, READER, "data=lines", "split=all")["results"]["cer"] > 0.3


def test_masks(tmp_path: Path) -> None:
    pytest.importorskip("stardist")
    Image.open(IMAGES / "tissue.png").save(tmp_path / "tissue.png")
    labels = load(SEGMENTER).predict(tmp_path / "tissue.png").labels
    assert labels.max() > 5, "objects to find"
    for split in ("train", "valid", "test"):
        for kind in ("images", "masks"):
            (tmp_path / split / kind).mkdir(parents=True)
        shutil.copy(tmp_path / "tissue.png", tmp_path / split / "images")
        tifffile.imwrite(tmp_path / split / "masks" / "tissue.tif", labels)
    found = evaluated(tmp_path, SEGMENTER, "data=mask_folder")
    assert found["pictures"] == 1
    assert {found["results"][name] for name in ("dice", "iou", "ap50", "ap90", "pq")} == {1.0}
    assert (found["turned"]["pixels"], found["turned"]["objects"]) == (0, 0)
    assert evaluated(tmp_path, SEGMENTER, "data=mask_folder", "data.in_chans=1") == found, "channels are the weights'"
    assert evaluated(tmp_path, SEGMENTER, "data=mask_folder", "split=all")["pictures"] == 3
    assert evaluated(tmp_path / "test", SEGMENTER, "data=mask_folder", "split=all")["results"] == found["results"]
    with raises("split.too_few"):
        evaluated(tmp_path / "test", SEGMENTER, "data=mask_folder")
    for split in ("train", "valid"):
        shutil.rmtree(tmp_path / split)
    assert evaluated(tmp_path, SEGMENTER, "data=mask_folder") == found
    shutil.copy(tmp_path / "test/images/tissue.png", tmp_path / "test/images/other.png")
    for name in ("tissue", "other"):  # two pieces in each
        tifffile.imwrite(tmp_path / "test/masks" / f"{name}.tif", 7 * ((labels == 1) | (labels == 2)))
    with raises("mask.pieces"):
        evaluated(tmp_path, SEGMENTER, "data=mask_folder")


@pytest.mark.parametrize(
    ("model", "overrides", "key"),
    [
        (READER, ["data=lines", "copies=8"], "config.no_effect"),
        (READER, ["data=lines", "split=some"], "split"),
        (READER, ["data=lines", "limit=0"], "limit"),
        (SEGMENTER, ["data=lines"], "weights.task"),
        (SEGMENTER, ["data=mask_folder", "split=train"], "split"),
        (READER, ["data=mask_folder"], "pairs.no_mask"),
    ],
)
def test_what_cannot_be_measured(lines: Path, model: str, overrides: list[str], key: str) -> None:
    with raises(key):
        evaluated(lines, model, *overrides)
    with raises("config.no_effect"):
        evaluated(lines, SEGMENTER, "data=mask_folder", adapter="some")
