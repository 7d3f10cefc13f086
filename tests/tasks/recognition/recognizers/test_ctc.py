"""A line is read the same whichever way it is turned, and whatever it shares a batch with."""

from pathlib import Path

import pytest
import torch

import gcsa
from gcsa.groups import group
from gcsa.tasks.recognition.ctc import CTCRecognizer
from gcsa.tasks.recognition.reading import frames
from gcsa.testing import randomize

CHARACTERS = "abcdefgh "


def recognizer(encoder: str = "gcsa_ocr_tiny", **options: object) -> CTCRecognizer:
    torch.manual_seed(0)
    if encoder.startswith("gcsa"):
        options = dict(fields=8, depth=1, heads=2) | options
    model = randomize(CTCRecognizer(CHARACTERS, encoder, hidden=32, **options)).eval()
    classifier = model.head.classifier
    with torch.no_grad():  # an untrained model says nearly the same to every line; this one tells them apart
        seen: list[torch.Tensor] = []
        hook = classifier.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
        model(lines(96, 8))
        hook.remove()
        classifier.weight.normal_().div_(seen[0].std((0, 1)))
        classifier.bias.copy_(-classifier.weight @ seen[0].mean((0, 1)))
    return model


def lines(width: int, count: int = 3) -> torch.Tensor:
    """Blots, which differ from each other more than noise does."""
    generator = torch.Generator().manual_seed(width)
    blots = (torch.rand(count, 1, 10, width // 4, generator=generator) > 0.5).float()
    return torch.nn.functional.interpolate(blots, scale_factor=4)


@pytest.mark.parametrize("name", ["c4", "c8", "d4"])
@pytest.mark.parametrize("width", [96, 104, 40])
@pytest.mark.parametrize("beams", [1, 3])
def test_a_turned_line_reads_the_same(name: str, width: int, beams: int) -> None:
    model = recognizer(group=name)
    upright = model.read(lines(width), "any", beams)
    assert len({reading.text for reading in upright}) == 3
    assert all(reading.text for reading in upright)
    for turn in (90, 180, 270):
        for plain, turned in zip(
            upright, model.read(torch.rot90(lines(width), turn // 90, (2, 3)), "any", beams), strict=True
        ):
            assert turned.text == plain.text
            assert turned.confidence == pytest.approx(plain.confidence, rel=1e-4)
            assert turned.turn == (plain.turn + turn) % 360


def test_the_trivial_group_reads_a_turned_line_differently() -> None:
    model = recognizer(group="c1")
    upright = [reading.text for reading in model.read(lines(96))]
    assert [reading.text for reading in model.read(torch.rot90(lines(96), 2, (2, 3)))] != upright
    with pytest.raises(ValueError, match="group c1 does not read turned lines"):
        model.read(lines(96), "any")


def test_upright_is_one_of_the_frames() -> None:
    model = recognizer()
    upright, best = model.read(lines(96)), model.read(lines(96), "any")
    for one, other in zip(upright, best, strict=True):
        assert one.turn == 0
        assert other == one if other.turn == 0 else other.confidence > one.confidence


def test_frames_are_the_turns_of_a_line_of_that_height() -> None:
    assert frames(group("c4"), "any", 40, 96, 40) == {0: 0, 180: 2}
    assert frames(group("c8"), "any", 96, 40, 40) == {90: 2, 270: 6}
    assert list(frames(group("d4"), "any", 40, 40, 40)) == [0, 90, 180, 270]
    assert frames(group("c1"), "upright", 40, 40, 40) == {0: 0}


@pytest.mark.parametrize("encoder", ["gcsa_ocr_tiny", "crnn"])
def test_the_batch_does_not_influence_a_line(encoder: str) -> None:
    model = recognizer(encoder)
    together = model(lines(96))
    for i in range(3):
        assert torch.allclose(model(lines(96)[i : i + 1])[0], together[i], atol=1e-5)


@pytest.mark.parametrize(("encoder", "classes"), [("gcsa_ocr_tiny", 10), ("crnn", 10)])
def test_time_steps(encoder: str, classes: int) -> None:
    model = recognizer(encoder, upsample=1 if encoder == "crnn" else 2)
    out = model(lines(96))
    assert out.shape == (3, 96 // model.stride * model.steps, classes)
    assert out.shape[1] == 24
    assert torch.allclose(out.exp().sum(-1), torch.ones(3, 24))


def test_every_parameter_is_trained() -> None:
    for encoder in ("gcsa_ocr_tiny", "crnn"):
        model = recognizer(encoder).train()
        model(lines(96)).square().mean().backward()
        assert [name for name, p in model.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(centred=True, head_fields=8), "has no classifier, and does not use centred, head_fields: leave out"),
        (dict(encoder="gcsa_ocr_huge"), "unknown encoder 'gcsa_ocr_huge': choose one of crnn, gcsa_ocr_small"),
        (dict(height=42), "height must be a multiple of 8, the stride of gcsa_ocr_tiny, not 42"),
        (dict(upsample=0), "upsample=0"),
        (dict(colour=1), "unknown model option 'colour'"),
        (dict(encoder="crnn", colour=1), "unknown model option 'colour'"),
        (dict(heads=3), "heads=3 does not divide"),
    ],
)
def test_bad_arguments(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CTCRecognizer(CHARACTERS, **options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((lines(96), "sideways"), "unknown orientation 'sideways': choose upright or any"),
        ((lines(96), "any", 0), "beams must be 1 or more, not 0"),
        ((torch.rand(1, 1, 96, 40), "upright"), "lines must be 40 pixels high, not 96 x 40"),
        ((torch.rand(1, 1, 48, 96), "any"), "lines must be 40 pixels high, not 48 x 96"),
    ],
)
def test_bad_lines(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recognizer().read(*arguments)


def test_a_longer_charset_reads_as_before() -> None:
    model = recognizer()
    before = model.read(lines(96), "any")
    model.extend(CHARACTERS + "xyz")
    assert model(lines(96)).shape[2] == 1 + len(CHARACTERS) + 3
    assert [reading.text for reading in model.read(lines(96), "any")] == [reading.text for reading in before]
    with torch.no_grad():
        model.head.classifier.bias[-1] = 100.0
    assert {reading.text for reading in model.read(lines(96))} == {"z"}
    with pytest.raises(ValueError, match="must begin with the 12 characters"):
        model.extend("xyz" + CHARACTERS)


@pytest.mark.parametrize("encoder", ["gcsa_ocr_tiny", "crnn"])
def test_save_and_load(encoder: str, tmp_path: Path) -> None:
    model = recognizer(encoder)
    opened = gcsa.load(model.save_pretrained(tmp_path / "weights")).network
    assert opened.charset == model.charset
    assert torch.equal(opened(lines(96)), model(lines(96)))
    (tmp_path / "weights/model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ValueError, match="is damaged or not"):
        gcsa.load(tmp_path / "weights")
    (tmp_path / "weights/config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"there is no .*config\.json"):
        gcsa.load(tmp_path / "weights")


def test_right_to_left_lines_come_in_logical_order() -> None:
    word = "\u0643\u062a\u0627\u0628"
    model = CTCRecognizer("".join(sorted(word)), fields=8, depth=1, heads=2)
    left_to_right = model.charset.encode(word[::-1])
    assert model.text(left_to_right) == word
