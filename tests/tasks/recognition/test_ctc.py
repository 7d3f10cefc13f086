"""A line is read the same whichever way it is turned, and whatever it shares a batch with."""

import itertools
import math
from pathlib import Path

import pytest
import torch
from torch.nn.functional import one_hot

import gcsa
from gcsa.groups import group
from gcsa.tasks.recognition.ctc import CTCRecognizer, beam_search, ctc_loss, greedy
from gcsa.tasks.recognition.reading import Reading, orientations
from tests.errors import raises
from tests.tasks.recognition.small import CHARACTERS, lines, recognizer


@pytest.mark.parametrize(("name", "recurrent"), [("c4", 0), ("c8", 0), ("d4", 0), ("c4", 16)])
@pytest.mark.parametrize(("width", "beams"), [(96, 1), (104, 3), (40, 1)])
def test_a_turned_line_reads_the_same(name: str, recurrent: int, width: int, beams: int) -> None:
    model = recognizer(group=name, recurrent=recurrent)
    upright = model.read(lines(width), "any", beams)
    assert len({reading.text for reading in upright}) == 3
    assert all(reading.text for reading in upright)
    for turn in (90, 180, 270):
        for plain, turned in zip(
            upright, model.read(torch.rot90(lines(width), turn // 90, (2, 3)), "any", beams), strict=True
        ):
            assert turned.text == plain.text
            assert turned.confidence == pytest.approx(plain.confidence, rel=1e-4)
            assert turned.orientation == (plain.orientation + turn) % 360


@pytest.mark.parametrize("encoder", ["gcsa_ocr_tiny", "crnn"])
def test_a_plain_encoder_reads_a_rotated_line_in_a_pass_for_each_orientation(encoder: str) -> None:
    model = recognizer(group="c1") if encoder == "gcsa_ocr_tiny" else recognizer(encoder)
    upright = [reading.text for reading in model.read(lines(96))]
    assert [reading.text for reading in model.read(torch.rot90(lines(96), 2, (2, 3)))] != upright
    best = model.read(lines(96), "any")
    for degrees in (0, 90, 180, 270):
        read = model.read(torch.rot90(lines(96), degrees // 90, (2, 3)), "any")
        assert [reading.text for reading in read] == [reading.text for reading in best]
        assert [reading.orientation for reading in read] == [(reading.orientation + degrees) % 360 for reading in best]
    with raises("input.height"):
        model.read(lines(96)[:, :, 1:], "any")


def test_upright_is_one_of_the_frames() -> None:
    model = recognizer()
    upright, best = model.read(lines(96)), model.read(lines(96), "any")
    for one, other in zip(upright, best, strict=True):
        assert one.orientation == 0
        assert other == one if other.orientation == 0 else other.confidence > one.confidence


def test_frames_are_the_turns_of_a_line_of_that_height() -> None:
    assert orientations(group("c4"), "any", 40, 96, 40) == {0: 0, 180: 2}
    assert orientations(group("c8"), "any", 96, 40, 40) == {90: 2, 270: 6}
    assert list(orientations(group("d4"), "any", 40, 40, 40)) == [0, 90, 180, 270]
    assert orientations(group("c1"), "upright", 40, 40, 40) == {0: 0}


@pytest.mark.parametrize(("encoder", "recurrent"), [("gcsa_ocr_tiny", 0), ("gcsa_ocr_tiny", 8), ("crnn", 0)])
def test_scores(encoder: str, recurrent: int) -> None:
    """Probabilities over time that other lines do not influence, and that train every parameter."""
    model = recognizer(encoder, upsample=1 if encoder == "crnn" else 2, recurrent=recurrent)
    out = model(lines(96))
    assert out.shape == (3, 96 // model.stride * model.steps, 10) == (3, 24, 10)
    assert torch.allclose(out.exp().sum(-1), torch.ones(3, 24))
    for i in range(3):
        assert torch.allclose(model(lines(96)[i : i + 1])[0], out[i], atol=1e-4)
    model.train()(lines(96)).square().mean().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize(
    ("options", "key"),
    [
        (dict(centred=True, head_fields=8), "encoder.unused"),
        (dict(encoder="gcsa_ocr_huge"), "encoder"),
        (dict(height=42), "height.stride"),
        (dict(upsample=0), "upsample"),
        (dict(recurrent=-1), "recurrent"),
        (dict(colour=1), "option.unknown"),
        (dict(encoder="crnn", colour=1), "option.unknown"),
        (dict(num_heads=3), "num_heads"),
    ],
)
def test_bad_arguments(options: dict, key: str) -> None:
    with raises(key):
        CTCRecognizer(CHARACTERS, **options)


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ((lines(96), "sideways"), "orientation"),
        ((lines(96), "any", 0), "beams"),
        ((torch.rand(1, 1, 96, 40), "upright"), "input.height"),
        ((torch.rand(1, 1, 48, 96), "any"), "input.height"),
    ],
)
def test_bad_lines(arguments: tuple, key: str) -> None:
    with raises(key):
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
    with raises("charset.extend"):
        model.extend("xyz" + CHARACTERS)


def test_an_lstm_sees_the_whole_line_and_begins_as_none() -> None:
    """Another right end of a line changes the scores of its left end; a fresh branch of a trained recogniser changes nothing."""
    left = lines(96)
    right = left.clone()
    right[..., 80:] = 1 - right[..., 80:]

    def change(model: CTCRecognizer) -> float:
        with torch.no_grad():
            return float((model(left) - model(right))[:, :2].abs().max())

    near = dict(radius=1, depth=1)
    assert change(recognizer(**near)) == 0
    assert change(recognizer(**near, recurrent=8)) > 1e-3

    plain = recognizer()
    grown = CTCRecognizer(CHARACTERS, hidden=32, fields=8, depth=1, num_heads=2, recurrent=8).eval()
    weights = plain.state_dict()
    grown.load_state_dict(grown.untrained_branch(weights) | weights)
    assert torch.equal(grown(left), plain(left))
    assert grown.untrained_branch(grown.state_dict()) == {}


@pytest.mark.parametrize(("encoder", "recurrent"), [("gcsa_ocr_tiny", 0), ("gcsa_ocr_tiny", 8), ("crnn", 0)])
def test_save_and_load(encoder: str, recurrent: int, tmp_path: Path) -> None:
    model = recognizer(encoder, recurrent=recurrent)
    opened = gcsa.load(model.save_pretrained(tmp_path / "weights")).network
    assert opened.charset == model.charset
    assert torch.equal(opened(lines(96)), model(lines(96)))
    (tmp_path / "weights/model.safetensors").write_bytes(b"no weights")
    with raises("weights.damaged"):
        gcsa.load(tmp_path / "weights")
    (tmp_path / "weights/config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"there is no .*config\.json"):
        gcsa.load(tmp_path / "weights")


def test_right_to_left_lines_come_in_logical_order() -> None:
    word = "\u0643\u062a\u0627\u0628"
    assert said("".join(sorted(word)), word[::-1]).text == word


def said(characters: str, text: str) -> Reading:
    """The reading of scores that say `text` from left to right, with a blank behind each character."""
    model = CTCRecognizer(characters, fields=8, depth=1, num_heads=2)
    path = [step for character in text for step in (1 + characters.index(character), 0)]
    return model.reading((20 * one_hot(torch.tensor(path), len(characters) + 1).float()).log_softmax(-1))


@pytest.mark.parametrize(
    ("read", "text", "characters"),
    [
        ("  a  b ", "a b", ["a", " ", "b"]),
        ("ae\u0301b", "a\u00e9b", ["a", "\u00e9", "b"]),
        ("\u0653\u0627", "\u0622", ["\u0622"]),  # from right to left, so that the accent stands before its letter
        (" ", "", []),
    ],
)
def test_a_text_is_normalised(read: str, text: str, characters: list[str]) -> None:
    reading = said("".join(sorted(set(read))), read)
    assert (reading.text, [c.character for c in reading.characters]) == (text, characters)
    assert all(0 <= c.start < c.end <= 1 for c in reading.characters)
    if text == "a\u00e9b":
        assert (reading.characters[1].start, reading.characters[1].end) == (2 / 8, 5 / 8), "of letter and accent"


def scores(times: int, classes: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(times, classes, generator=generator)).log_softmax(-1)


def collapsed(path: tuple[int, ...]) -> tuple[int, ...]:
    """What a path says, by the definition."""
    return tuple(label for label, _ in itertools.groupby(path) if label != 0)


def probabilities(log_probs: torch.Tensor) -> dict[tuple[int, ...], float]:
    """Of every text, summed over all paths."""
    total: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(log_probs.shape[1]), repeat=len(log_probs)):
        p = math.exp(sum(float(log_probs[t, label]) for t, label in enumerate(path)))
        total[collapsed(path)] = total.get(collapsed(path), 0.0) + p
    return total


@pytest.mark.parametrize("seed", range(6))
def test_beam_search_finds_the_most_probable_text(seed: int) -> None:
    log_probs = scores(6, 3, seed)
    exact = probabilities(log_probs)
    assert tuple(beam_search(log_probs, beams=100)) == max(exact, key=lambda text: exact[text])


def test_beam_search_sums_over_paths_where_greedy_takes_one() -> None:
    log_probs = torch.tensor([[0.6, 0.4], [0.6, 0.4]]).log()  # blank blank: 0.36; any path with a 1: 0.64
    assert greedy(log_probs)[0] == []
    assert beam_search(log_probs, beams=4) == [1]


def test_greedy_merges_repeats_and_drops_blanks() -> None:
    path = torch.tensor([0, 1, 1, 0, 1, 2, 2, 0])
    runs, confidence = greedy(torch.full((8, 3), 0.05).scatter(1, path[:, None], 0.9).log())
    assert [(run.label, run.start, run.end) for run in runs] == [(1, 1, 3), (1, 4, 5), (2, 5, 7)]
    assert [run.probability for run in runs] == pytest.approx([0.9] * 3)
    assert confidence == pytest.approx(0.9)


def test_certain_blanks_do_not_make_a_line_certain() -> None:
    blank = torch.tensor([[0.98, 0.01, 0.01]] * 50).log()
    assert greedy(blank) == ([], 0.0)
    unsure = torch.cat([blank, torch.tensor([[0.3, 0.4, 0.3]]).log()])
    assert greedy(unsure)[1] < 0.7


def test_loss_is_the_probability_of_the_text() -> None:
    log_probs = torch.stack([scores(5, 3, 1), scores(5, 3, 2)])
    texts = [(1, 2), (2,)]
    loss = ctc_loss(log_probs, torch.tensor([1, 2, 2]), torch.tensor([2, 1]))
    exact = [-math.log(probabilities(line)[text]) / len(text) for line, text in zip(log_probs, texts, strict=True)]
    assert float(loss) == pytest.approx(sum(exact) / 2, rel=1e-4)
