"""What a user can set for data and that cannot work: one sentence, at once, before anything is read."""

from pathlib import Path
from typing import Any

import pytest

from gcsa._utils.paths import confined, expanded, read_bounded
from gcsa.tasks.classification.data import create_datamodule
from gcsa.tasks.recognition.data.datamodule import LinesDataModule
from gcsa.tasks.storage import data_root

EVERYWHERE = [
    ("batch_size", 0),
    ("batch_size", -3),
    ("batch_size", 1.5),
    ("batch_size", "abc"),
    ("batch_size", True),
    ("batch_size", None),
    ("batch_size", 10**30),
    ("batch_size", [4]),
    ("num_workers", -1),
    ("num_workers", 0.5),
    ("num_workers", 10**6),
    ("num_workers", "two"),
    ("seed", -1),
    ("seed", 2**32),
    ("seed", "x"),
    ("limit_train", 0),
    ("limit_train", 1.5),
    ("limit_train", -0.1),
    ("limit_train", "abc"),
    ("limit_train", float("nan")),
    ("limit_train", True),
    ("limit_train", [1]),
    ("augment", "abc"),
    ("augment", 3),
    ("augment", ["degrees"]),
    ("augment", {"degree": 3}),
    ("augment", {3: 3}),
]
IMAGES = [
    ("download", "abc"),
    ("download", 1),
    ("drop_last", "no"),
    ("train_on_val", "no"),
    ("augment.degrees", "abc"),
    ("augment.degrees", -1),
    ("augment.degrees", float("inf")),
    ("augment.degrees", True),
    ("augment.degrees", None),
    ("augment.degrees", [1, 2]),
    ("augment.translate", float("nan")),
    ("augment.translate", 10**9),
    ("augment.elastic", "1"),
    ("augment.elastic", 1e30),
    ("augment.flip", "yes"),
    ("augment.quarter_turns", 2),
    ("augment.scale", 1.0),
    ("augment.scale", "ab"),
    ("augment.scale", [1]),
    ("augment.scale", [0, 1]),
    ("augment.scale", [2, 1]),
    ("augment.scale", ["a", "b"]),
    ("augment.scale", [1, float("inf")]),
    ("augment.scale", [1, 1e300]),
    ("augment.scale", {"low": 1, "high": 2}),
    ("augment.padding_mode", "wrap"),
    ("augment.padding_mode", 3),
    ("augment.padding_mode", ["zeros"]),
]
FOLDERS = [
    ("image_size", 0),
    ("image_size", -5),
    ("image_size", 100_000),
    ("image_size", 32.0),
    ("image_size", "abc"),
    ("image_size", [32, 32]),
    ("image_size", True),
    ("in_chans", 2),
    ("in_chans", "rgb"),
    ("in_chans", None),
    ("pad", "grey"),
    ("pad", 255),
    ("max_memory_gb", -1),
    ("max_memory_gb", "8GB"),
    ("max_memory_gb", float("nan")),
    ("path", None),
    ("path", True),
    ("path", ["a"]),
    ("path", "a\0b"),
]
LINES = [
    ("height", 0),
    ("height", 41),
    ("height", 40.0),
    ("height", 10**6),
    ("height", "tall"),
    ("step", 0),
    ("step", 80),
    ("step", "8"),
    ("charset", 5),
    ("charset", ["a", "b"]),
    ("charset", "aa"),
    ("short_first", "abc"),
    ("any_image", 1),
    ("script", "fr17"),
    ("augment.shear", 45),
    ("augment.shear", "abc"),
    ("augment.blur", 1),
    ("augment.noise", -0.1),
    ("augment.noise", None),
    ("augment.contrast", float("nan")),
]


def options(key: str, value: object) -> dict[str, Any]:
    outer, _, inner = key.partition(".")
    return {outer: {inner: value} if inner else value}


def refused(create: Any, key: str, value: object) -> None:
    with pytest.raises(ValueError, match=key.rpartition(".")[2]) as error:
        create(**options(key, value))
    message = str(error.value)
    assert "\n" not in message
    assert len(message) < 400


@pytest.mark.parametrize(("key", "value"), EVERYWHERE + IMAGES)
def test_of_images(key: str, value: object) -> None:
    refused(lambda **given: create_datamodule("digits", **given), key, value)


@pytest.mark.parametrize(("key", "value"), FOLDERS)
def test_of_folders(key: str, value: object, tmp_path: Path) -> None:
    refused(lambda **given: create_datamodule("image_folder", **{"path": tmp_path, **given}), key, value)


@pytest.mark.parametrize("value", [-1, "8GB", float("inf")])
def test_of_pcam(value: object, tmp_path: Path) -> None:
    refused(lambda **given: create_datamodule("pcam", root=tmp_path, **given), "max_memory_gb", value)


@pytest.mark.parametrize(("key", "value"), EVERYWHERE + LINES)
def test_of_lines(key: str, value: object, tmp_path: Path) -> None:
    refused(lambda **given: LinesDataModule(**{"path": tmp_path, **given}), key, value)


def test_a_home_folder_that_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in containers that run as a number without a name."""

    def unknown(self: Path) -> Path:
        if str(self).startswith("~"):
            raise RuntimeError("Could not determine home directory.")
        return self

    monkeypatch.setattr(Path, "expanduser", unknown)
    for use in (lambda: data_root("~/data"), lambda: create_datamodule("image_folder", path="~/images")):
        with pytest.raises(ValueError, match=r"^~/.* starts with ~, and no home folder is known: write the whole path"):
            use()


def test_folders_called_like_numbers() -> None:
    assert expanded(2024) == Path("2024")


def test_confined(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    for path in (tmp_path / "secret", folder / "1.png", folder / "sub" / "2.png", folder / "a:b.png"):
        path.write_text("x")
    (folder / "out").symlink_to(tmp_path)
    (folder / "link.png").symlink_to(tmp_path / "secret")
    (folder / "inner.png").symlink_to(folder / "1.png")
    (folder / "circle").symlink_to(folder / "circle")
    for name, found in (
        ("1.png", "1.png"),
        ("./1.png", "1.png"),
        ("sub/2.png", "sub/2.png"),
        ("sub\\2.png", "sub/2.png"),
        ("inner.png", "inner.png"),
        ("a:b.png", "a:b.png"),
    ):
        assert confined(folder, name) == folder / found
    for name in (
        *("", ".", "sub", "no.png", "..", "../secret", "sub/../../secret", "sub/../1.png", "..\\secret", "out/secret"),
        *(
            "link.png",
            str(tmp_path / "secret"),
            str(folder / "1.png"),
            "C:\\x.png",
            "\\\\host\\share\\x.png",
            "\\1.png",
        ),
        *("1.png\0", "a" * 5000, "\ud800", "circle", "circle/x", "~/x.png", "/dev/zero"),
    ):
        assert confined(folder, name) is None, name


def test_files_are_read_up_to_a_bound(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_bounded(tmp_path / "file", 5) == b"12345"
    with pytest.raises(ValueError, match="file is larger than 4 bytes"):
        read_bounded(tmp_path / "file", 4)
    with pytest.raises(ValueError, match="is not a regular file"):
        read_bounded(tmp_path, 4)
    with pytest.raises(FileNotFoundError):
        read_bounded(tmp_path / "nothing", 4)
