"""Import paths that a README showed keep working, and give the same objects as the present ones."""

import importlib

import pytest

MOVED = {
    "gcsa.ocr.trocr:TrOCRRecognizer": "gcsa.ocr.recognizers.trocr:TrOCRRecognizer",
    "gcsa.ocr.trocr:create_trocr": "gcsa.ocr.recognizers.trocr:create_trocr",
    "gcsa.ocr.trocr:character_tokenizer": "gcsa.ocr.recognizers.trocr:character_tokenizer",
    "gcsa.ocr.line_image:fit_line": "gcsa.ocr.data.line_image:fit_line",
    "gcsa.ocr.line_image:read_line": "gcsa.ocr.data.line_image:read_line",
    "gcsa.layers.attend:GroupAttention": "gcsa.layers.attention.attend:GroupAttention",
    "gcsa.layers.attend:attend_nearby": "gcsa.layers.attention.attend:attend_nearby",
    "gcsa.layers.self_attention:GroupConvSelfAttention": "gcsa.layers.attention.self_attention:GroupConvSelfAttention",
}
SHOWN = (
    "gcsa.ocr.load:load_recognizer",
    "gcsa.adapters:lora_config",
    "gcsa.adapters:load",
    "gcsa.export:fold",
    "gcsa.testing:assert_equivariant",
)


def find(path: str) -> object:
    """The object that MODULE:NAME names."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize(("old", "present"), MOVED.items())
def test_moved_paths_give_the_same_object(old: str, present: str) -> None:
    assert find(old) is find(present)


@pytest.mark.parametrize("path", SHOWN)
def test_paths_of_the_readme(path: str) -> None:
    assert callable(find(path))


def test_layers_of_the_readme() -> None:
    """The README shows the room; these modules of it are what users' own networks import."""
    for module in ("attend", "block", "head", "norm", "self_attention", "steerable"):
        importlib.import_module(f"gcsa.layers.{module}")
