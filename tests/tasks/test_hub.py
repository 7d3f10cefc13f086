"""Folders for the hub: what timm and our own loaders make of them, and what is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import timm
import timm.models._hub
import torch
from huggingface_hub import ModelCard
from huggingface_hub.errors import EntryNotFoundError

import gcsa
from gcsa._utils.published import published
from gcsa.cli.export import main
from gcsa.tasks import hub
from gcsa.tasks.hub import write_hub
from tests.errors import raises

OWNER = "somebody"


@pytest.fixture
def fake_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose folders are the repositories of `OWNER`."""

    def fetch(repo_id: str, filename: str, **options: object) -> str:
        owner, name = repo_id.split("/")
        file = tmp_path / name / filename
        if owner != OWNER or not file.is_file():
            raise EntryNotFoundError(f"there is no {repo_id}/{filename}")
        return str(file)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fetch)
    monkeypatch.setattr(timm.models._hub, "hf_hub_download", fetch)
    return tmp_path


@pytest.mark.parametrize("name", ["gcsa_tiny.rotmnist", "gcsa_pooled_small.pcam"])
def test_timm_opens_a_classifier(name: str, fake_hub: Path) -> None:
    folder = fake_hub / "digits"
    assert main([name, "--format", "hub", "--output", str(folder)]) == 0
    expected = gcsa.load(name).network
    x = torch.rand(2, *expected.pretrained_cfg["input_size"])  # type: ignore[index]
    for source in (f"local-dir:{folder}", f"hf-hub:{OWNER}/digits"):
        model = timm.create_model(source, pretrained=True).eval()
        assert torch.equal(model(x), expected(x))
        assert tuple(model.pretrained_cfg["mean"]) == expected.pretrained_cfg["mean"]  # type: ignore[index]
        again: Any = gcsa.load(source)
        assert torch.equal(again.network(x), expected(x))
        assert again.ood_scorer is not None
    card = ModelCard.load(folder / "README.md")
    assert (card.data.license, card.data.library_name) == ("apache-2.0", "timm")
    assert "## Test set" in card.text
    assert "accuracy" in card.text
    assert sorted(file.name for file in folder.iterdir()) == sorted(
        ["README.md", "config.json", "mistakes.png", "model.safetensors", "off_grid.png"]
    )


def test_our_loaders_open_the_others(fake_hub: Path) -> None:
    write_hub("gcsa_ocr_tiny.fr17", fake_hub / "lines")
    write_hub("gcsa_unet_tiny.nuclei", fake_hub / "nuclei")
    line, tissue = torch.rand(1, 1, 40, 80), torch.rand(1, 3, 64, 64)
    for place in (str(fake_hub / "{}"), f"local-dir:{fake_hub}/{{}}", f"hf-hub:{OWNER}/{{}}"):
        assert torch.equal(
            gcsa.load(place.format("lines")).network(line), gcsa.load("gcsa_ocr_tiny.fr17").network(line)
        )
        assert torch.equal(
            gcsa.load(place.format("nuclei")).network(tissue), gcsa.load("gcsa_unet_tiny.nuclei").network(tissue)
        )
    for name in ("lines", "nuclei"):
        card = ModelCard.load(fake_hub / name / "README.md")
        assert card.data.library_name == "gcsa"
        assert "timm does not open this folder" in card.text


def test_a_card_comes_along_with_its_pictures_by_name_and_by_path(tmp_path: Path) -> None:
    shipped = published("gcsa_ocr_tiny.print")
    assert shipped is not None
    for source in ("gcsa_ocr_tiny.print", str(shipped)):
        folder = write_hub(source, tmp_path / source.replace("/", "-"))
        assert ModelCard.load(folder / "README.md").data.license == "apache-2.0"
        assert {path.name for path in folder.glob("*.png")} == {path.name for path in shipped.glob("*.png")}


def own(tmp_path: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """Weights without a card, whose config.json is changed."""
    folder = Path(shutil.copytree(published("gcsa_tiny.rotmnist") or "", tmp_path / "own"))
    (folder / "README.md").unlink()
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_weights_of_ones_own_get_a_card_without_a_licence(tmp_path: Path) -> None:
    about = {"data": "my | digits", "results": {"test/accuracy": 0.98765, "turned": {"accuracy": 0.5}}}
    folder = write_hub(str(own(tmp_path, lambda config: config.update(about))), tmp_path / "out")
    card = ModelCard.load(folder / "README.md")
    assert card.data.license is None
    assert "| test/accuracy | 0.9877 |" in card.text
    assert "| turned/accuracy | 0.5 |" in card.text
    assert "Data: my \\| digits." in card.text
    assert "No licence is stated." in card.text
    assert "license" not in json.loads((folder / "config.json").read_text())["pretrained_cfg"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gcsa_ocr_tiny.print.de19"], "is an adapter, which the hub takes as PEFT wrote it: name whole weights"),
        (["gcsa_tiny"], "--format hub is for trained weights, and gcsa_tiny is none"),
        (["gcsa_tiny.rotmnist", "--group", "c8"], "hub takes trained weights as they are"),
    ],
)
def test_refused(arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*arguments, "--format", "hub", "--output", str(tmp_path / "out")])
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_classifier_must_tell_how_images_are_normalised(tmp_path: Path) -> None:
    folder = own(tmp_path, lambda config: config["pretrained_cfg"].pop("mean"))
    with raises("weights.preprocessing"):
        write_hub(str(folder), tmp_path / "out")


def test_what_is_there_stays_and_nothing_is_left_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    with raises("hub.exists"):
        write_hub("gcsa_tiny.rotmnist", tmp_path / "mine")

    def full(*args: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(hub, "_card", full)
    with pytest.raises(OSError, match="No space left"):
        write_hub("gcsa_tiny.rotmnist", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
