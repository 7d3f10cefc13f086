"""The order of lines on made-up pages: columns, notes, titles, double pages."""

import numpy as np
import pytest

from gcsa.tasks.recognition.data.cutting import FoundLine
from gcsa.tasks.recognition.pages.reading_order import order_on_page, reading_order
from gcsa.tasks.recognition.reading import Reading


def line(left: float, top: float, right: float, height: float = 20) -> FoundLine:
    bottom = top + height
    return FoundLine(((left, top), (right, top), (right, bottom), (left, bottom)), ((left, bottom), (right, bottom)))


def column(left: float, right: float, first: int, count: int, top: float = 100) -> dict[int, FoundLine]:
    """Lines with numbers from `first` on, one below the other."""
    return {first + i: line(left, top + 30 * i, right) for i in range(count)}


def double(left: float, first: int) -> dict[int, FoundLine]:
    """A page of two columns below its number and title."""
    head = {first: line(left, 60, left + 30), first + 1: line(left + 100, 55, left + 300)}
    return head | column(left, left + 190, first + 2, 8) | column(left + 210, left + 400, first + 10, 8)


PAGES = {
    "one column": column(100, 500, 0, 9),
    "two columns": column(100, 300, 0, 9) | column(320, 520, 9, 9),
    "three columns": column(100, 300, 0, 9) | column(320, 520, 9, 9) | column(540, 740, 18, 9),
    "a title over columns": {0: line(100, 50, 520, 30)} | column(100, 300, 1, 9) | column(320, 520, 10, 9),
    "a title between columns": column(100, 300, 0, 5)
    | column(320, 520, 5, 5)
    | {10: line(120, 260, 500), 11: line(120, 290, 500)}
    | column(100, 300, 12, 5, 330)
    | column(320, 520, 17, 5, 330),
    "notes at the right": column(100, 500, 0, 9) | column(515, 600, 9, 4, 160),
    "notes at the left": column(100, 500, 0, 9) | column(10, 90, 9, 4, 160),
    "notes, title, foot": {0: line(100, 50, 300)}
    | column(100, 500, 1, 9)
    | {10: line(450, 380, 500)}
    | column(515, 600, 11, 4, 160),
    "a double page": double(0, 0) | double(500, 18),
    "page number and catchword": {0: line(100, 60, 150), 1: line(250, 60, 400)}
    | column(100, 500, 2, 9)
    | {11: line(430, 380, 500)},
    "a table of contents": {
        2 * i + j: line(*sides)
        for i in range(9)
        for j, sides in enumerate([(100, 100 + 30 * i, 400), (480, 100 + 30 * i, 505)])
    },
    "a line in two pieces": {0: line(100, 100, 500)}
    | {1: line(100, 130, 290), 2: line(305, 133, 500)}
    | column(100, 500, 3, 5, 160),
    "a speck between two lines": column(100, 500, 0, 2) | {2: line(250, 117, 258, 8)} | column(100, 500, 3, 3, 160),
}


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("skew", [0.0, 3.0])
def test_lines_are_read_in_this_order(name: str, skew: float) -> None:
    """Whatever the order in which they were found, and on a skewed page."""
    page = PAGES[name]
    cos, sin = np.cos(np.radians(skew)), np.sin(np.radians(skew))
    rotation = np.array([[cos, sin], [-sin, cos]])
    numbers = np.random.default_rng(0).permutation(sorted(page)).tolist()
    lines = [FoundLine(*(tuple(map(tuple, np.array(points) @ rotation)) for points in page[n])) for n in numbers]
    order = [numbers[i] for block in reading_order(lines) for i in block]
    if name == "a speck between two lines":
        order.remove(2)
        page = {n: place for n, place in page.items() if n != 2}
    assert order == sorted(page)


def test_blocks_are_columns_titles_and_notes() -> None:
    sizes = {name: [len(block) for block in reading_order([*page.values()])] for name, page in PAGES.items()}
    assert sizes["a title between columns"] == [5, 5, 2, 5, 5]
    assert sizes["notes, title, foot"] == [11, 4]
    assert sizes["three columns"] == [9, 9, 9]
    assert sizes["one column"] == [9]


def test_lines_at_a_right_angle_come_last() -> None:
    page = column(100, 500, 0, 5)
    note = FoundLine(((30, 300), (30, 100), (50, 100), (50, 300)), ((45, 300), (45, 100)))
    assert reading_order([note, *page.values()]) == [[1, 2, 3, 4, 5], [0]]
    text = [Reading("text", 0.9)] * 5
    assert order_on_page([note, *page.values()], [Reading("note", 0.8, 90), *text]) == [[1, 2, 3, 4, 5], [0]]
    assert order_on_page([note, *page.values()], [Reading("i]i[i", 0.4, 90), *text]) == [[1, 2, 3, 4, 5]], "a gutter"


def test_columns_of_a_script_from_right_to_left() -> None:
    page = column(320, 520, 0, 5) | column(100, 300, 5, 5)
    readings = [Reading("\u05d0\u05d1", 0.9)] * 10
    assert order_on_page([*page.values()], readings) == [[*range(5)], [*range(5, 10)]]


def test_the_text_says_how_the_page_lies() -> None:
    page = [*column(100, 500, 0, 5).values()]
    scan = [place.rotated(90, (800, 600)) for place in page]
    assert order_on_page(scan, [Reading("text", 0.9, 90)] * 5) == [[0, 1, 2, 3, 4]]
    assert order_on_page(scan, [Reading("text", 0.9, 270)] * 5) == [[4, 3, 2, 1, 0]]
    assert order_on_page([], []) == []
