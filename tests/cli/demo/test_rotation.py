"""What the demo shows, without a browser."""

import numpy as np
import pytest
from PIL import Image

from gcsa.cli.demo import rotation
from tests.errors import raises


@pytest.mark.parametrize("angle", [90, 180, 270])
def test_our_scores_stay_at_quarter_rotations(angle: int) -> None:
    digit = rotation.example_digit()
    _, ours, plain = rotation.classify(digit, 0)
    _, ours_rotated, plain_rotated = rotation.classify(digit, angle)
    assert list(ours.values()) == pytest.approx(list(ours_rotated.values()), abs=1e-5)
    assert max(ours, key=ours.__getitem__) == "7"
    assert max(abs(plain[label] - plain_rotated[label]) for label in plain) > 0.1


def test_the_plain_network_is_good_while_digits_are_upright() -> None:
    assert rotation.plain()[1] > 0.9


def test_dark_digits_on_paper_are_read_as_well() -> None:
    digit = rotation.example_digit()
    paper = Image.fromarray(255 - np.asarray(digit))
    assert rotation.classify(paper, 30)[1] == pytest.approx(rotation.classify(digit, 30)[1])


def test_borders_of_nuclei_rotate_with_the_picture() -> None:
    nuclei = rotation.example("nuclei.png")
    upright, found = rotation.segment(nuclei, 0)
    quarter, found_rotated = rotation.segment(nuclei, 90)
    assert found == found_rotated != "0 nuclei"
    assert np.array_equal(np.rot90(upright), quarter)


def test_large_pictures_are_scaled_down() -> None:
    picture, _ = rotation.segment(rotation.example("nuclei.png").resize((768, 384)), 0)
    assert picture.shape == (256, rotation.LARGEST, 3)


def test_a_line_reads_the_same_at_any_quarter_rotation() -> None:
    line = rotation.example("line.png")
    answers = [rotation.read(line, angle)[1:] for angle in (0, 90, 180, 270, 360)]
    assert len({text for text, _ in answers}) == 1
    assert len(answers[0][0]) > 20
    assert [certain.split()[-2] for _, certain in answers] == ["0", "90", "180", "270", "0"]


def test_other_angles_keep_the_background() -> None:
    picture = Image.new("RGB", (20, 20), (10, 200, 30))
    assert (np.asarray(rotation.rotated(picture, 45)) == (10, 200, 30)).all()


def test_without_a_picture_one_sentence() -> None:
    for show in (rotation.classify, rotation.segment, rotation.read):
        with raises("picture.missing"):
            show(None, 0)
