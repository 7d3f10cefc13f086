"""What napari reads before it imports anything of gcsa: the manifest, and what it names."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import gcsa

MANIFEST = Path(gcsa.__file__).parent / "napari.yaml"


def test_the_manifest_is_valid() -> None:
    npe2 = pytest.importorskip("npe2")
    manifest = npe2.PluginManifest.from_file(MANIFEST)
    manifest.validate_imports()
    assert manifest.name == "gcsa-vit"  # that of the distribution, else napari refuses it
    names = [widget.display_name for widget in manifest.contributions.widgets]
    assert names == ["Segment", "Audit rotations", "Embed objects"]
    manager = npe2.PluginManager()
    manager.register(manifest)
    for name, is_ours in {"a_labels.png": True, "a_labels.tif": True, "a.geojson": True, "a.png": False}.items():
        assert bool(list(manager.iter_compatible_readers([f"/x/{name}"]))) is is_ours


def test_what_the_manifest_names_is_there() -> None:
    names = [line.split(": ")[1] for line in MANIFEST.read_text().splitlines() if "python_name" in line]
    assert len(names) == 4
    for name in names:
        module, _, attribute = name.partition(":")
        assert find_spec(module) is not None
        if find_spec("napari") is not None or not module.endswith("widgets"):
            assert callable(getattr(import_module(module), attribute))
