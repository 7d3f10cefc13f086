"""What the demo shows, without a browser."""

import numpy as np
import pytest
from PIL import Image

from gcsa.cli.demo import turning


@pytest.mark.parametrize("angle", [90, 180, 270])
def test_our_scores_stay_at_quarter_turns(angle: int) -> None:
    digit = turning.example_digit()
    _, ours, plain = turning.classify(digit, 0)
    _, ours_turned, plain_turned = turning.classify(digit, angle)
    assert list(ours.values()) == pytest.approx(list(ours_turned.values()), abs=1e-5)
    assert max(ours, key=ours.__getitem__) == "7"
    assert max(abs(plain[label] - plain_turned[label]) for label in plain) > 0.1


def test_the_plain_network_is_good_while_digits_are_upright() -> None:
    assert turning.plain()[1] > 0.9


def test_dark_digits_on_paper_are_read_as_well() -> None:
    digit = turning.example_digit()
    paper = Image.fromarray(255 - np.asarray(digit))
    assert turning.classify(paper, 30)[1] == pytest.approx(turning.classify(digit, 30)[1])


def test_borders_of_nuclei_turn_with_the_picture() -> None:
    nuclei = turning.example("nuclei.png")
    upright, found = turning.segment(nuclei, 0)
    quarter, found_turned = turning.segment(nuclei, 90)
    assert found == found_turned != "0 nuclei"
    assert np.array_equal(np.rot90(upright), quarter)


def test_large_pictures_are_scaled_down() -> None:
    picture, _ = turning.segment(turning.example("nuclei.png").resize((768, 384)), 0)
    assert picture.shape == (256, turning.LARGEST, 3)


def test_a_line_reads_the_same_at_any_quarter_turn() -> None:
    line = turning.example("line.png")
    answers = [turning.read(line, angle)[1:] for angle in (0, 90, 180, 270, 360)]
    assert len({text for text, _ in answers}) == 1
    assert len(answers[0][0]) > 20
    assert [certain.split()[-2] for _, certain in answers] == ["0", "90", "180", "270", "0"]


def test_other_angles_keep_the_background() -> None:
    picture = Image.new("RGB", (20, 20), (10, 200, 30))
    assert (np.asarray(turning.turned(picture, 45)) == (10, 200, 30)).all()


def test_without_a_picture_one_sentence() -> None:
    for show in (turning.classify, turning.segment, turning.read):
        with pytest.raises(ValueError, match="there is no picture: choose one"):
            show(None, 0)
