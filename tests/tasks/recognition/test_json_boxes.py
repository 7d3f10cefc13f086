"""The boxes of lines and words in JSON end where the page ends."""

from pathlib import Path
from typing import Any

from gcsa.tasks.recognition.data.line_image import Line
from gcsa.tasks.recognition.pages.inputs import LineInput, Source, Transcript
from gcsa.tasks.recognition.reading import Character, Reading

POLYGON = ((-7.0, -3.0), (115.0, -3.0), (115.0, 20.0), (-7.0, 20.0))
"""Of a line, kraken's or of an XML file, which reaches beyond a page of 100 x 50 pixels on three sides."""


def test_boxes_end_at_the_edge_of_the_page() -> None:
    characters = tuple(Character(sign, i / 7, (i + 1) / 7, 0.9) for i, sign in enumerate("one two"))
    line = LineInput(Source(Path("1.png")), Line(Path("1.png"), polygon=POLYGON), 1)
    transcript = Transcript(line, Reading("one two", 0.9, 0, characters))

    def boxes(size: tuple[int, int] | None) -> list[list[int]]:
        content: dict[str, Any] = transcript.as_dict(size)
        return [content["box"], *(word["box"] for word in content["words"])]

    assert any(min(box) < 0 for box in boxes(None)), "the polygon reaches beyond the page"
    line_box, *words = boxes((100, 50))
    assert line_box == [0, 0, 99, 20]
    assert [words[0][0], words[-1][2]] == [0, 99]
    assert all(0 <= left < right <= 99 and 0 <= top < bottom <= 49 for left, top, right, bottom in words)
