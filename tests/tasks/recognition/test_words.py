"""Words stand where their characters do, on a page that was scanned in any orientation."""

import math
import tracemalloc

import numpy as np
import pytest

from gcsa.tasks.recognition.data.cutting import Points, rotate_points
from gcsa.tasks.recognition.pages.words import words_of
from gcsa.tasks.recognition.reading import Character, Reading

PAGE = (100, 200)
POLYGON = ((10.0, 20.0), (110.0, 20.0), (110.0, 40.0), (10.0, 40.0))


def reading(shown: str, text: str | None = None, orientation: int = 0) -> Reading:
    """A line whose `shown` characters have a tenth of it each."""
    characters = [Character(sign, i / 10, (i + 1) / 10, 0.5 + i / 100) for i, sign in enumerate(shown)]
    return Reading(text or shown, 0.9, orientation, tuple(characters))


def test_a_word_is_in_its_share_of_the_line() -> None:
    first, second = words_of(POLYGON, reading("ab cdefg"))
    assert (first.text, first.box) == ("ab", (10, 20, 30, 40))
    assert (second.text, second.box) == ("cdefg", (40, 20, 90, 40))
    assert first.confidence == pytest.approx(0.505)


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_boxes_rotate_with_the_page(degrees: int) -> None:
    line = rotate_points(POLYGON, degrees, PAGE)
    expected = [
        rotate_points([word.box[:2], word.box[2:]], degrees, PAGE) for word in words_of(POLYGON, reading("ab cd"))
    ]
    for word, points in zip(words_of(line, reading("ab cd", orientation=degrees)), expected, strict=True):
        xs, ys = zip(*points, strict=True)
        assert word.box == (min(xs), min(ys), max(xs), max(ys))


@pytest.mark.parametrize("with_baseline", [True, False])
@pytest.mark.parametrize("degrees", [10, -20])
def test_a_word_of_a_sloping_line_is_in_its_share_of_the_straightened_one(degrees: int, with_baseline: bool) -> None:
    """Of a line 200 x 20, as `cut` straightens it: the box around the rotated word."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))

    def rotated(*points: tuple[float, float]) -> tuple[tuple[float, float], ...]:
        return tuple((300 + s * cos + v * sin, 300 - s * sin + v * cos) for s, v in points)

    line = rotated((0, 0), (200, 0), (200, 20), (0, 20))
    baseline = rotated((0, 15), (200, 15)) if with_baseline else None
    words = words_of(line, reading("ab cdefghi"), baseline)
    for word, start, end in zip(words, (0, 60), (40, 200), strict=True):
        xs, ys = zip(*rotated((start, 0), (end, 0), (end, 20), (start, 20)), strict=True)
        assert np.abs(np.subtract(word.box, (min(xs), min(ys), max(xs), max(ys)))).max() <= 1


@pytest.mark.parametrize("baseline", [((20.0, 110.0), (20.0, 10.0)), ((20.0, 10.0), (22.0, 110.0))])
def test_words_of_a_line_that_was_read_across_its_base_line_are_in_its_box(baseline: Points) -> None:
    """A finder may call something upright a line whose text is read as level: no curve y = c(x) goes through an upright base line."""
    upright = ((10.0, 10.0), (40.0, 10.0), (40.0, 110.0), (10.0, 110.0))
    assert [word.box for word in words_of(upright, reading("ab cdefghi"), baseline)] == [
        (10, 10, 16, 110),
        (19, 10, 40, 110),
    ]


def test_a_word_of_a_slightly_sloping_line_is_as_high_as_the_line_is_there() -> None:
    sloping = ((0.0, 0.0), (100.0, 4.0), (100.0, 24.0), (0.0, 20.0))
    first, last = words_of(sloping, reading("ab cdefghi"))
    assert (first.box, last.box) == ((0, 0, 20, 21), (30, 1, 100, 24))


def test_a_line_far_beyond_its_page_takes_no_memory() -> None:
    """Of an XML file that states nonsense."""
    line = ((0.0, 0.0), (1e7, 2e6), (1e7, 2e6 + 20), (0.0, 20.0))
    tracemalloc.start()
    assert len(words_of(line, reading("ab cdefghi"))) == 2
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 20


def test_words_from_right_to_left_are_in_the_order_of_the_text() -> None:
    """On the page: the second word, then the first, each from its last letter on."""
    text = "\u05d0\u05d1 \u05d2\u05d3"
    first, second = words_of(POLYGON, reading(text[::-1], text))
    assert (first.text, first.box[0], second.text, second.box[0]) == ("\u05d0\u05d1", 40, "\u05d2\u05d3", 10)


@pytest.mark.parametrize("line", [Reading("two words", 0.7), reading("ab cd", "something else")])
def test_a_line_whose_words_have_no_places_is_one(line: Reading) -> None:
    (word,) = words_of(POLYGON, line)
    assert (word.text, word.confidence, word.box) == (line.text, line.confidence, (10, 20, 110, 40))
    assert words_of(POLYGON, Reading("", 0.5)) == []
