"""Losses and decoders against what they are defined to be."""

import itertools
import math

import pytest
import torch

from gcsa.tasks.recognition.decoding import beam_search, ctc_loss, greedy


def scores(times: int, classes: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(times, classes, generator=generator)).log_softmax(-1)


def said(path: tuple[int, ...]) -> tuple[int, ...]:
    """What a path says, by the definition."""
    return tuple(label for label, _ in itertools.groupby(path) if label != 0)


def probabilities(log_probs: torch.Tensor) -> dict[tuple[int, ...], float]:
    """Of every text, summed over all paths."""
    total: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(log_probs.shape[1]), repeat=len(log_probs)):
        p = math.exp(sum(float(log_probs[t, label]) for t, label in enumerate(path)))
        total[said(path)] = total.get(said(path), 0.0) + p
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
    doubtful = torch.cat([blank, torch.tensor([[0.3, 0.4, 0.3]]).log()])
    assert greedy(doubtful)[1] < 0.7


def test_loss_is_the_probability_of_the_text() -> None:
    log_probs = torch.stack([scores(5, 3, 1), scores(5, 3, 2)])
    texts = [(1, 2), (2,)]
    loss = ctc_loss(log_probs, torch.tensor([1, 2, 2]), torch.tensor([2, 1]))
    exact = [-math.log(probabilities(line)[text]) / len(text) for line, text in zip(log_probs, texts, strict=True)]
    assert float(loss) == pytest.approx(sum(exact) / 2, rel=1e-4)
