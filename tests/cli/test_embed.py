"""gcsa embed: a row of features for every image, one sentence for every bad one, a whole file or none."""

import builtins
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from PIL import Image

from gcsa._utils.published import published
from gcsa.tasks import load
from tests.integrations.pictures import patches, poses

Run = Callable[..., tuple[int, str, str]]
WEIGHTS = "gcsa_pooled_small.pcam"


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Two patches in eight poses each, of 96 x 96 and 90 x 81 pixels."""
    folder = tmp_path / "images"
    folder.mkdir()
    first, second = patches(2)
    for name, pixels in (("a", first), ("b", second[:90, 5:86])):
        for place, pose in enumerate(poses(pixels)):
            Image.fromarray(pose).save(folder / f"{name}{place}.png")
    (folder / "notes.txt").write_text("no image")
    return folder


def read(path: Path) -> tuple[np.ndarray[Any, Any], list[str]]:
    if path.suffix == ".h5":
        with h5py.File(path) as file:
            return file["features"][:], file["files"].asstr()[:].tolist()
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(path)
    return np.stack(table["features"].to_numpy(zero_copy_only=False)), table["file"].to_pylist()


@pytest.mark.parametrize("suffix", [".h5", ".parquet"])
def test_the_same_features_for_every_pose(run: Run, images: Path, tmp_path: Path, suffix: str) -> None:
    output = tmp_path / f"features{suffix}"
    code, out, err = run("embed", WEIGHTS, images, "--output", output, "--batch-size", 5, "--threads", 1)
    assert (code, out) == (0, f"{output}: 16 images, 96 features each\n")
    assert err.startswith(
        "8 of 16 images are not 96 x 96 pixels: their centre square is resized; the weights see 0.972 "
    )
    features, files = read(output)
    assert (features.dtype, features.shape) == (np.float32, (16, 96))
    assert files == sorted(str(path) for path in images.glob("*.png"))
    for rows in (features[:8], features[8:]):
        assert np.linalg.norm(rows - rows[0], axis=1).max() / np.linalg.norm(rows[0]) < 1e-5
    assert np.linalg.norm(features[0] - features[8]) / np.linalg.norm(features[0]) > 0.01
    expected = load(WEIGHTS).features(images / "b3.png")
    assert torch.allclose(torch.from_numpy(features[11]), expected, atol=1e-5)
    assert {path.name for path in tmp_path.iterdir()} == {"images", "cwd", output.name}


def test_it_says_how_images_were_made_ready(run: Run, images: Path, tmp_path: Path) -> None:
    for suffix in (".h5", ".parquet"):
        assert run("embed", WEIGHTS, images / "a0.png", "--output", tmp_path / f"x{suffix}")[0] == 0
    with h5py.File(tmp_path / "x.h5") as file:
        about = {key: np.asarray(value).tolist() for key, value in file.attrs.items()}
    assert about == {"weights": WEIGHTS, "size": 96, "mean": [0.7009, 0.5398, 0.6963], "std": [0.2334, 0.2767, 0.2109]}
    metadata = pytest.importorskip("pyarrow.parquet").read_schema(tmp_path / "x.parquet").metadata
    assert {key.decode(): json.loads(value) for key, value in metadata.items()} == about


def test_a_network_of_others_made_exact(
    run: Run, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("corner.py").write_text("def see(images):\n    return images[:, :2, 0, :3].flatten(1)\n")
    monkeypatch.syspath_prepend(str(Path.cwd()))
    changed = []
    averaged, rotated = ["--symmetry", "averaged"], ["--rotations", "8"]
    for options in ([], averaged, [*averaged, *rotated], ["--symmetry", "canonical", *rotated]):
        code, _, err = run("embed", "corner:see", images, "--output", tmp_path / "f.h5", *options)
        assert (code, "has no group of rotations" in err) == (0, not options), err
        features, _ = read(tmp_path / "f.h5")
        changed.append(np.abs(features[1:8] - features[0]).max())
    assert changed[0] > 0.1
    assert max(changed[1:]) < 1e-5
    with h5py.File(tmp_path / "f.h5") as file:
        assert (file.attrs["symmetry"], file.attrs["rotations"]) == ("canonical, d4", 8)
    code, _, err = run("embed", "corner:see", images, "--output", tmp_path / "f.h5", *rotated)
    assert (code, "rotations=8 is for a network that is exact for rotations, not for c1" in err) == (2, True)
    code, _, err = run("embed", "corner:see", images, "--output", tmp_path / "f.h5", "--adapter", "x")
    assert (code, "an adapter is for weights of gcsa" in err) == (2, True)


def test_what_cannot_be_read_is_listed_and_the_rest_is_embedded(run: Run, images: Path, tmp_path: Path) -> None:
    (images / "b0.png").write_text("no image at all")
    named = images / os.fsdecode(b"\xff.png")
    shutil.copy(images / "a0.png", named)
    code, out, err = run("embed", WEIGHTS, images, "--output", tmp_path / "features.h5")
    assert (code, out) == (1, f"{tmp_path / 'features.h5'}: 15 images, 96 features each\n")
    lines = err.splitlines()
    assert lines[0].startswith(f"{images / 'b0.png'} cannot be read as an image")
    assert lines[1].endswith("has a name that is not UTF-8: rename it")
    assert lines[2].startswith("7 of 17 images are not 96 x 96 pixels")
    assert lines[3:] == ["2 of 17 could not be embedded"]
    assert str(images / "b0.png") not in read(tmp_path / "features.h5")[1]


def test_nothing_is_written_where_nothing_could_be_read(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x.png").write_text("no image")
    (tmp_path / "features.h5").write_text("of yesterday")
    code, out, err = run("embed", WEIGHTS, tmp_path / "x.png", "--output", tmp_path / "features.h5")
    assert (code, out) == (1, "")
    assert "1 of 1 could not be embedded" in err
    assert (tmp_path / "features.h5").read_text() == "of yesterday"


def test_an_interrupted_run_leaves_the_old_file(
    run: Run, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "features.h5").write_text("of yesterday")

    def interrupted(path: Path, *_: object) -> None:
        path.write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr("gcsa.tasks.classification.folder.write_features", interrupted)
    code, _, err = run("embed", WEIGHTS, images / "a0.png", "--output", tmp_path / "features.h5")
    assert (code, err) == (130, "error: interrupted\n")
    assert (tmp_path / "features.h5").read_text() == "of yesterday"
    assert {path.name for path in tmp_path.iterdir()} == {"images", "cwd", "features.h5", "features.h5.part"}, (
        "which goes on"
    )


def test_weights_without_turns_are_said(run: Run, images: Path, tmp_path: Path) -> None:
    from gcsa.models.create import create_model
    from gcsa.weights import save_classifier

    model = create_model("gcsa_pooled_small", group="c1", num_classes=2, fields=4, scalar_fields=8, depth=1)
    folder = save_classifier(model, tmp_path / "weights")
    code, _, err = run("embed", folder, images / "a0.png", "--output", tmp_path / "features.h5")
    assert code == 0
    assert err == f"{folder} has no group of rotations: its features change when an image rotates\n"


def test_without_pyarrow(run: Run, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError("No module named 'pyarrow'")
        return imported(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    code, out, err = run("embed", WEIGHTS, images, "--output", tmp_path / "features.parquet")
    assert (code, out) == (2, "")
    assert err == (
        "error: a .parquet file needs pyarrow (No module named 'pyarrow'): pip install gcsa-vit[parquet], or name an .h5 file\n"
    )


def test_a_checkpoint_does_not_say_how_images_are_made_ready(run: Run, images: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(published(WEIGHTS), tmp_path / "weights")  # type: ignore[arg-type]
    config = json.loads((folder / "config.json").read_text())
    del config["pretrained_cfg"]["mean"]
    (folder / "config.json").write_text(json.dumps(config))
    code, _, err = run("embed", folder, images, "--output", tmp_path / "features.h5")
    assert code == 2
    assert "does not say how images are made ready (no mean)" in err
