"""gcsa embed --patches: the patches of slides, in files that CLAM and TRIDENT read, by runs that may be killed."""

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from matplotlib import colormaps
from PIL import Image

from gcsa._utils.arrays import Array
from gcsa.batch import Pace
from gcsa.cli import embed
from gcsa.images.slides import open_slide
from gcsa.tasks import load
from gcsa.tasks.classification import slides
from gcsa.tasks.classification.heatmap import COLOURS, LEGEND
from gcsa.tasks.classification.patches import RowStore
from gcsa.tasks.ood import OODScorer
from tests.images.slide_files import halved, tissue_picture, write_slide
from tests.images.zarr_files import write_zarr

Run = Callable[..., tuple[int, str, str]]
WEIGHTS = "gcsa_pooled_small.pcam"
"""For 0.972 micrometres a pixel."""


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slides of these tests are no tissue, which is of no concern to most of them."""
    monkeypatch.setattr(OODScorer, "__call__", lambda _, features: torch.zeros(len(features)))


@pytest.fixture
def slide(tmp_path: Path) -> Path:
    """1,000 x 1,200 pixels of 0.486 micrometres, so that 192 of them are a patch; tissue from row 250 on, to column 600."""
    file = tmp_path / "slides/x.tif"
    file.parent.mkdir()
    write_slide(file, halved(tissue_picture(1000, 1200), 2), mpp=0.486)
    return file


def read(file: Path) -> tuple[Array, Array, dict[str, Any], dict[str, Any]]:
    with h5py.File(file) as content:
        of_coords, about = dict(content["coords"].attrs), dict(content.attrs)
        return content["features"][:], content["coords"][:], of_coords, about


def test_features_coordinates_and_attributes(run: Run, slide: Path, tmp_path: Path) -> None:
    output = tmp_path / "features"
    code, out, err = run("embed", WEIGHTS, slide.parent, "--patches", "--output", output, "--batch-size", 5)
    assert (code, out, err) == (0, f"{output / 'x.h5'}: 12 patches, 96 features each\n", "")
    features, coords, of_coords, about = read(output / "x.h5")
    assert coords.tolist() == [[x, y] for y in (192, 384, 576, 768) for x in (0, 192, 384)]
    assert of_coords == {
        "patch_size": 96, "patch_size_level0": 192, "level0_magnification": pytest.approx(20.5761), "overlap": 0,
        "target_magnification": pytest.approx(10.28805), "name": "x", "savetodir": str(output), "level0_width": 1200,
        "level0_height": 1000, "patch_level": 1, "downsample": 2,
    }  # fmt: skip
    assert (about["weights"], about["mpp"], about["tissue"], about["size"]) == (WEIGHTS, 0.972, 0.25, 96)
    magnified = of_coords["level0_magnification"] / of_coords["target_magnification"]
    assert round(of_coords["patch_size"] * magnified) == of_coords["patch_size_level0"], (
        "WSIPatcher of TRIDENT reads so many"
    )
    with open_slide(slide, 3) as source:
        patches = [source.levels[1].window(y // 2, x // 2, y // 2 + 96, x // 2 + 96) for x, y in coords[:4]]
    expected = load(WEIGHTS).features(patches).numpy()
    assert np.abs(features[:4] - expected).max() < 1e-5
    with Image.open(output / "x_patches.png") as picture:
        assert np.asarray(picture)[:100].min() > 200, "the part without tissue is faded"
        assert np.asarray(picture)[300:700, 100:400].mean() < 200
    assert {path.name for path in output.iterdir()} == {"x.h5", "x_patches.png", "gcsa_embed.ledger"}


@pytest.mark.skipif(find_spec("openslide") is None, reason="OpenSlide is an extra")
def test_a_slide_of_a_scanner(run: Run, tmp_path: Path) -> None:
    write_slide(tmp_path / "x.svs", halved(tissue_picture(500, 600), 1), mpp=0.5, aperio=True)
    options = ("--mpp", 1, "--tissue", 0, "--patches", "--output", tmp_path / "out")
    code, out, err = run("embed", WEIGHTS, tmp_path / "x.svs", *options)
    assert (code, out) == (0, f"{tmp_path / 'out/x.h5'}: 12 patches, 96 features each\n"), err
    of_coords = read(tmp_path / "out/x.h5")[2]
    assert (of_coords["level0_magnification"], of_coords["target_magnification"]) == (20, 10)


def test_a_killed_run_goes_on(run: Run, slide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("embed", WEIGHTS, slide, "--patches", "--batch-size", 5, "--output")
    assert run(*arguments, tmp_path / "whole")[0] == 0
    append, counts = RowStore.append, []

    def dying(store: RowStore, rows: Array) -> None:
        append(store, rows)
        counts.append(len(rows))
        if len(counts) == 2:
            with store.file.open("ab") as file:
                file.write(b"half a row")
            raise KeyboardInterrupt

    monkeypatch.setattr(RowStore, "append", dying)
    assert run(*arguments, tmp_path / "parts")[0] == 130
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == ["gcsa_embed.ledger", "x.h5.part"]
    code, out, _ = run(*arguments, tmp_path / "parts")
    assert (code, "12 patches, 96 features each, 10 of them from before" in out) == (0, True)
    assert sum(counts) == 12
    for one, other in zip(read(tmp_path / "whole/x.h5")[:2], read(tmp_path / "parts/x.h5")[:2], strict=True):
        assert np.array_equal(one, other)
    code, out, err = run(*arguments, tmp_path / "parts")
    assert (code, out, err) == (0, "", "1 of 1 are done already, by the same weights and options\n")
    code, _, err = run(*arguments, tmp_path / "parts", "--mpp", 2)
    assert (code, "x.h5 is there, made with --mpp left out (now 2.0): --overwrite makes it anew" in err) == (2, True)


def test_what_is_embedded_anew(run: Run, slide: Path, tmp_path: Path) -> None:
    arguments = ("embed", WEIGHTS, slide, "--patches", "--output", tmp_path)
    assert run(*arguments)[0] == 0
    (tmp_path / "gcsa_embed.ledger").unlink()
    code, _, err = run(*arguments)
    assert (code, "no run that is known here wrote it: --overwrite writes it anew" in err) == (2, True)
    code, out, _ = run(*arguments, "--overwrite")
    assert (code, out) == (0, f"{tmp_path / 'x.h5'}: 12 patches, 96 features each\n")
    os.utime(slide, (0, 0))
    assert run(*arguments)[:2] == (0, out), "another slide of this name and size"


def test_several_processes_share_a_slide(
    run: Run, slide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One died before it began, and one in the middle of its rows."""
    arguments = (WEIGHTS, slide, "--patches", "--batch-size", 1, "--output")
    assert run("embed", *arguments, tmp_path / "whole")[0] == 0
    work = embed._work(embed._arguments([*map(str, arguments), str(tmp_path / "parts")]))
    (tmp_path / "parts").mkdir()
    assert work.parts(slide, 8) == 1, "it is small"
    monkeypatch.setattr(slides, "LEAST_PATCHES", 4)
    assert [work.parts(slide, most) for most in (1, 2, 8)] == [1, 2, 3]
    for number in (0, 2):
        work.part(slide, number, 3)
    rows = tmp_path / "parts/x.h5.part.8"
    rows.write_bytes(rows.read_bytes()[:-5])
    embedded: list[int] = []
    work.network.register_forward_hook(lambda module, inputs, out: embedded.append(len(out)))
    assert work.one(slide, Pace()).values["said"] == f"{tmp_path / 'parts/x.h5'}: 12 patches, 96 features each"
    assert len(embedded) == 4 + 1
    for one, other in zip(read(tmp_path / "whole/x.h5")[:2], read(tmp_path / "parts/x.h5")[:2], strict=True):
        assert np.array_equal(one, other)
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == ["x.h5", "x_patches.png"]
    assert work.parts(slide, 8) == 1, "it is there"


def test_heat_map(run: Run, slide: Path, tmp_path: Path) -> None:
    arguments = ("embed", WEIGHTS, slide, "--patches", "--output", tmp_path)
    code, _, err = run(*arguments, "--heatmap", "tumour")
    assert code == 0, err
    with Image.open(tmp_path / "x_heatmap_tumour.png") as opened:
        picture = np.asarray(opened).astype(int)
    height, width = 853, 1024
    assert picture.shape == (height + LEGEND, width, 3)
    with Image.open(tmp_path / "x_patches.png") as opened:
        below = np.asarray(opened).astype(int)
    with open_slide(slide, 3) as source:
        patches = [source.levels[1].window(96 + 96 * i, 0, 192 + 96 * i, 96) for i in range(2)]
    for i, answer in enumerate(load(WEIGHTS).predict(patches)):
        top = round((192 + 192 * i) * height / 1000)
        inside = slice(top + 2, top + 150), slice(2, 150)
        expected = (below[inside] + 255 * np.array(colormaps[COLOURS](answer.scores["tumour"])[:3])) / 2
        assert np.abs(picture[inside] - expected).max() <= 2
    assert np.array_equal(picture[:150], below[:150]), "no patch there"
    (tmp_path / "x_heatmap_tumour.png").unlink()
    features = (tmp_path / "x.h5").read_bytes()
    code, out, _ = run(*arguments, "--heatmap", "tumour")  # of stored features
    assert (code, "there already" in out, (tmp_path / "x.h5").read_bytes() == features) == (0, True, True)
    with Image.open(tmp_path / "x_heatmap_tumour.png") as opened:
        assert np.array_equal(np.asarray(opened), picture)


def test_patches_that_are_unlike_those_of_training(
    run: Run, slide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has its score in the file, the heat map hatches them, and a slide of which they are the most is named."""
    monkeypatch.undo()
    arguments = (
        "embed",
        WEIGHTS,
        slide,
        "--patches",
        "--report",
        tmp_path / "report.csv",
        "--output",
        tmp_path / "out",
    )
    code, _, err = run(*arguments)
    assert code == 3
    assert err.startswith(
        "warning: 1 of 1 slides are for the most part unlike the images of training (OOD score above 1): "
    )
    assert "(100% of 12 patches)" in err
    row = (tmp_path / "report.csv").read_text().splitlines()
    assert (row[0].split(",")[-2:], row[1].split(",")[-2:]) == (["patches", "ood_patches"], ["12", "12"])
    with h5py.File(tmp_path / "out/x.h5") as content:
        scores, coords = content["ood_scores"][:], content["coords"][:]
        assert content["features"].shape == (12, 96)
    with open_slide(slide, 3) as source:
        patches = [source.levels[1].window(y // 2, x // 2, y // 2 + 96, x // 2 + 96) for x, y in coords[:3]]
    expected = [answer.ood_score for answer in load(WEIGHTS).predict(patches)]
    assert scores[:3] == pytest.approx(expected, rel=1e-3)
    assert run(*arguments)[0] == 3, "of the earlier run, too"
    monkeypatch.setattr(OODScorer, "__call__", lambda _, features: torch.arange(len(features)) % 3.0)
    code, _, err = run(*arguments[:-1], tmp_path / "some", "--heatmap", "tumour", "--batch-size", 12)
    assert (code, err) == (0, ""), "a third of the patches only"
    with Image.open(tmp_path / "some/x_heatmap_tumour.png") as opened:
        picture = np.asarray(opened)
    black = [
        (picture[164 + 164 * i : 324 + 164 * i, 164 * k : 164 + 164 * k] == 0).all(2).mean()
        for i in range(4)
        for k in range(3)
    ]
    assert [share > 0.2 for share in black] == [False, False, True] * 4
    assert all(share == 0 for share in black[::3])


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (
            WEIGHTS,
            ["--heatmap", "cat", "--patches"],
            "--heatmap cat is no class of these weights: choose normal, tumour",
        ),
        (WEIGHTS, ["--heatmap", "tumour"], "--heatmap tumour is of --patches"),
        ("timm:resnet18", ["--heatmap", "tumour", "--patches"], "timm:resnet18 gives features only"),
        ("numpy:sum", ["--heatmap", "tumour", "--patches"], "numpy:sum gives features only"),
    ],
)
def test_wrong_heat_maps(run: Run, slide: Path, tmp_path: Path, model: str, options: list[str], message: str) -> None:
    code, _, err = run("embed", model, slide, "--output", tmp_path / "out", *options)
    assert (code, message in err) == (2, True), err
    assert not list(tmp_path.glob("out/*"))


def test_rows_of_other_settings_are_not_kept(tmp_path: Path) -> None:
    store = RowStore(tmp_path / "x.part", {"mpp": 1})
    store.append(np.ones((3, 4), np.float32))
    store.append(np.full((1, 4), 2, np.float32))
    again = RowStore(tmp_path / "x.part", {"mpp": 1})
    assert again.rows().tolist() == [[1] * 4] * 3 + [[2] * 4]
    other = RowStore(tmp_path / "x.part", {"mpp": 2})
    assert other.count == 0
    other.append(np.zeros((1, 4), np.float32))
    assert RowStore(tmp_path / "x.part", {"mpp": 2}).rows().tolist() == [[0] * 4]
    (tmp_path / "x.part").write_bytes(b'{"about": {"mp')
    assert RowStore(tmp_path / "x.part", {"mpp": 2}).count == 0


def test_slides_and_large_images_are_no_single_image(run: Run, slide: Path, tmp_path: Path) -> None:
    """A row of a thumbnail would be wrong in silence."""
    Image.new("RGB", (1700, 1600)).save(slide.parent / "large.png")
    code, _, err = run("embed", WEIGHTS, slide.parent, "--output", tmp_path / "x.h5")
    assert (code, "2 of 2 could not be embedded" in err) == (1, True)
    assert "x.tif is a slide or a pyramid" in err
    assert "large.png holds 1600 x 1700 pixels, and the network sees 96 x 96: --patches embeds its patches" in err
    code, _, err = run("classify", WEIGHTS, slide)
    assert (code, "x.tif is a slide or a pyramid" in err) == (1, True)


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--mpp", "0.2"], 1, "x.tif has 0.486 micrometres a pixel, coarser than the 0.2"),
        (["--slide-mpp", "0.001"], 2, "0.001 is not a number from 0.01 to 100"),
        (["--slide-mpp", "0.01", "--mpp", "100"], 1, "above 4096: give a smaller --mpp"),
        (["--tissue", "2"], 2, "2 is not a number from 0 to 1"),
    ],
)
def test_wrong_scales(run: Run, slide: Path, tmp_path: Path, options: list[str], status: int, message: str) -> None:
    code, _, err = run("embed", WEIGHTS, slide, "--patches", "--output", tmp_path / "out", *options)
    assert (code, message in err) == (status, True), err


def test_what_cannot_be_embedded_is_said(run: Run, slide: Path, tmp_path: Path) -> None:
    glass = np.full((400, 400, 3), 240, np.uint8)
    write_slide(slide.parent / "glass.tif", [glass], mpp=0.486)
    Image.fromarray(glass).save(slide.parent / "unknown.png")
    arguments = ("embed", WEIGHTS, slide.parent, "--patches", "--output", tmp_path / "out")
    code, out, err = run(*arguments)
    assert (code, "x.h5: 12 patches" in out, "2 of 3 could not be embedded" in err) == (1, True, True)
    assert "glass.tif shows no stained tissue on bright glass: --tissue 0 takes all patches" in err
    assert "unknown.png does not say how many micrometres a pixel has: give --slide-mpp" in err
    code, out, _ = run(*arguments[:-1], tmp_path / "all", "--tissue", 0, "--slide-mpp", 0.486)
    assert (code, out.count("9 patches")) == (0, 2), out

    code, _, err = run("embed", WEIGHTS, slide, "--output", tmp_path / "x.h5", "--mpp", 1)
    assert (code, "--mpp 1 is of --patches: add --patches" in err) == (2, True)
    code, _, err = run("embed", WEIGHTS, slide, "--patches", "--output", tmp_path / "x.h5")
    assert (code, "name it without .h5" in err) == (2, True)
    Path("corner.py").write_text("def see(images):\n    return images[:, :2, 0, :3].flatten(1)\n")
    code, _, err = run("embed", "corner:see", slide, "--patches", "--output", tmp_path / "new")
    assert (code, "corner:see does not say at how many micrometres a pixel" in err) == (2, True)


def test_levels_and_rectangles(run: Run, slide: Path, tmp_path: Path) -> None:
    """Patches of a level, from the corner of a rectangle on, in coordinates of level 0."""
    command = ("embed", WEIGHTS, slide, "--patches", "--tissue", 0, "--roi", "100,300,400,200", "--output")
    code, out, err = run(*command, tmp_path / "out", "--level", 1)
    assert (code, err) == (0, "")
    features, coords, of_coords, about = read(tmp_path / "out/x.h5")
    assert coords.tolist() == [[x, y] for y in (300, 492) for x in (100, 292, 484)]
    assert (of_coords["patch_size_level0"], of_coords["patch_level"]) == (192, 1)
    assert (about["level"], about["roi"], "mpp" in about) == (1, "100,300,400,200", False)
    with open_slide(slide, 3) as source:
        patch = source.levels[1].window(150, 50, 246, 146)
    assert np.abs(features[0] - load(WEIGHTS).features(patch).numpy()).max() < 1e-5
    code, _, err = run(*command, tmp_path / "out", "--level", 1)
    assert "1 of 1 are done already" in err
    for options, status, words in (
        (("--level", 1, "--mpp", 1), 2, "--level 1 has micrometres a pixel of its own: leave out --mpp 1"),
        (("--level", 3), 1, "x.tif holds 3 levels, counted from 0: there is no --level 3"),
    ):
        code, _, err = run(*command, tmp_path / "other", *options)
        assert (code, words in err) == (status, True), err
    code, _, err = run("embed", WEIGHTS, slide, "--output", tmp_path / "x.h5", "--roi", "0,0,9,9")
    assert (code, "--roi 0,0,9,9 is of --patches: add --patches" in err) == (2, True)


def test_ome_zarr(run: Run, slide: Path, tmp_path: Path) -> None:
    """The same patches as of the same picture in TIFF without loss."""
    pytest.importorskip("zarr")
    levels = halved(tissue_picture(500, 600), 1)
    write_zarr(tmp_path / "x.zarr", [np.moveaxis(level, -1, 0) for level in levels], "cyx", chunks=(1, 64, 64))
    write_slide(tmp_path / "y.tif", levels, mpp=0.5, kind="webp")
    arguments = ("--patches", "--mpp", 1, "--output", tmp_path / "out")
    code, out, err = run("embed", WEIGHTS, tmp_path / "x.zarr", tmp_path / "y.tif", *arguments)
    assert (code, err, out.count(" patches, 96 features")) == (0, "", 2)
    ours, theirs = (read(tmp_path / f"out/{name}.h5") for name in "xy")
    assert np.array_equal(ours[1], theirs[1])
    assert np.array_equal(ours[0], theirs[0])
    assert int(ours[3]["slide_stamp"]) > 1000, "bytes of its files"
    code, _, err = run("embed", WEIGHTS, tmp_path / "x.zarr", "--output", tmp_path / "x.h5")
    assert (code, "x.zarr is a slide or a pyramid" in err) == (1, True)
    stack = np.random.default_rng(0).integers(0, 256, (2, 3, 100, 100), dtype=np.uint8)
    write_zarr(tmp_path / "s.zarr", [stack], "czyx", chunks=(1, 1, 64, 64))
    command = ("embed", WEIGHTS, tmp_path / "s.zarr", "--patches", "--tissue", 0, "--level", 0, "--output")
    code, _, err = run(*command, tmp_path / "out")
    assert (code, "s.zarr holds 2 channels" in err) == (1, True)
    assert run(*command, tmp_path / "out", "--channel", 2, "--z", "max")[0] == 0
    expected = np.repeat(stack[1].max(0)[:96, :96, None], 3, 2)
    features = load(WEIGHTS).features(expected).numpy()
    assert np.abs(read(tmp_path / "out/s.h5")[0][0] - features).max() < 1e-5
