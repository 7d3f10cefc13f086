"""Options of data that cannot work: one sentence, at once, before anything is read."""

from pathlib import Path
from typing import Any

import pytest

from gcsa.data.storage import data_root
from gcsa.tasks.classification.data import create_datamodule
from gcsa.tasks.recognition.data.datamodule import LinesDataModule
from tests.errors import raises

NAN, INF = float("nan"), float("inf")
ALL: dict[str, list[Any]] = {
    "batch_size": [0, -3, 1.5, "abc", True, None, 10**30, [4]],
    "num_workers": [-1, 0.5, 10**6, "two"],
    "seed": [-1, 2**32, "x"],
    "limit_train": [0, 1.5, -0.1, "abc", NAN, True, [1]],
    "augment": ["abc", 3, ["degrees"], {"degree": 3}, {3: 3}],
}
IMAGES: dict[str, list[Any]] = {
    "download": ["abc", 1],
    "drop_last": ["no"],
    "train_on_val": ["no"],
    "mean": [[0.1, 0.2, 0.3]],
    "augment.degrees": ["abc", -1, INF, True, None, [1, 2]],
    "augment.translate": [NAN, 10**9],
    "augment.elastic": ["1", 1e30, -0.5],
    "augment.blur": [-1, 50, "much"],
    "augment.brightness": [-0.1],
    "augment.jpeg": [-1, 101, 50.5, "much", None],
    "augment.contrast": [1],
    "augment.stain": ["much"],
    "augment.flip": ["yes"],
    "augment.quarter_turns": [2],
    "augment.scale": [1.0, "ab", [1], [0, 1], [2, 1], ["a", "b"], [1, INF], [1, 1e300], {"low": 1, "high": 2}],
    "augment.padding_mode": ["wrap", 3, ["zeros"]],
}
FOLDERS: dict[str, list[Any]] = {
    "image_size": [0, -5, 100_000, 32.0, "abc", [32, 32], True],
    "in_chans": [2, "rgb", None],
    "pad": ["grey", 255],
    "max_memory_gb": [-1, "8GB", NAN],
    "path": [None, True, ["a"], "a\0b"],
}
LINES: dict[str, list[Any]] = {
    "height": [0, 41, 40.0, 10**6, "tall"],
    "step": [0, 80, "8"],
    "charset": [5, ["a", "b"], "aa"],
    "short_first": ["abc"],
    "any_image": [1],
    "script": ["fr17"],
    "augment.shear": [45, "abc"],
    "augment.blur": [1],
    "augment.noise": [-0.1, None],
    "augment.contrast": [NAN],
}


def cases(*options: dict[str, list[Any]]) -> list[tuple[str, Any]]:
    return [(key, value) for choices in options for key, values in choices.items() for value in values]


def refused(create: Any, key: str, value: object, **options: Any) -> None:
    outer, _, inner = key.partition(".")
    with pytest.raises(ValueError, match=inner or outer) as error:
        create(**{**options, outer: {inner: value} if inner else value})
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize(("key", "value"), cases(ALL, IMAGES))
def test_of_images(key: str, value: object) -> None:
    refused(create_datamodule, key, value, name="digits")


@pytest.mark.parametrize(("key", "value"), cases(FOLDERS))
def test_of_folders(key: str, value: object, tmp_path: Path) -> None:
    refused(create_datamodule, key, value, name="image_folder", path=tmp_path)


@pytest.mark.parametrize("value", [-1, "8GB", INF])
def test_of_pcam(value: object, tmp_path: Path) -> None:
    refused(create_datamodule, "max_memory_gb", value, name="pcam", root=tmp_path)


@pytest.mark.parametrize(("key", "value"), cases(ALL, LINES))
def test_of_lines(key: str, value: object, tmp_path: Path) -> None:
    refused(LinesDataModule, key, value, path=tmp_path)


def test_a_home_folder_that_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in containers that run as a number without a name."""

    def unknown(self: Path) -> Path:
        if str(self).startswith("~"):
            raise RuntimeError("Could not determine home directory.")
        return self

    monkeypatch.setattr(Path, "expanduser", unknown)
    for use in (lambda: data_root("~/data"), lambda: create_datamodule("image_folder", path="~/images")):
        with raises("path.home"):
            use()
