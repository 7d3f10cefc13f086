"""Other forms of a text keep its lines, and its words where they are."""

import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest

from gcsa.tasks.recognition.data.line_image import Line
from gcsa.tasks.recognition.pages.forms import fold, to_form
from gcsa.tasks.recognition.pages.inputs import LineInput, Source, Transcript
from gcsa.tasks.recognition.pages.words import words_of
from gcsa.tasks.recognition.reading import Character, Reading

BOX = ((0.0, 0.0), (100.0, 0.0), (100.0, 20.0), (0.0, 20.0))


def page(*texts: str | None) -> list[Transcript]:
    """The lines of a page, of which None could not be read."""
    transcripts = []
    for number, text in enumerate(texts, 1):
        line = LineInput(Source(Path("1.png")), Line(Path("1.png"), polygon=BOX), number)
        characters = [Character(sign, i / 20, (i + 1) / 20, 0.9) for i, sign in enumerate(text or "")]
        transcripts.append(Transcript(line, None if text is None else Reading(text, 0.9, 0, tuple(characters))))
    return transcripts


def texts(transcripts: list[Transcript]) -> list[str | None]:
    for transcript in transcripts:
        if transcript.reading is not None:
            assert "".join(c.character for c in transcript.reading.characters) == transcript.reading.text
            assert all(c.start <= c.end for c in transcript.reading.characters)
    return [None if transcript.reading is None else transcript.reading.text for transcript in transcripts]


def boxes(transcripts: list[Transcript]) -> list[list[tuple[int, ...]]]:
    return [[word.box for word in words_of(BOX, t.reading)] for t in transcripts if t.reading is not None]


def test_by_default_nothing_changes() -> None:
    given = page("\u017fchö-", "ne \ufb01")
    assert to_form(given, ()) == given


def test_nfd_parts_letters_and_accents() -> None:
    given = page("été là", None)
    assert texts(to_form(given, ["NFD"])) == [unicodedata.normalize("NFD", "été là"), None]
    assert boxes(to_form(given, ["NFD"])) == boxes(given)


def test_nfd_puts_an_accent_before_a_letter_that_is_read_from_right_to_left() -> None:
    """As everywhere, characters go from left to right, and `text` as it is read."""
    letter = Reading("\u0622", 0.9, 0, (Character("\u0622", 0.0, 1.0, 0.9),))
    (transcript,) = to_form([replace(page("a")[0], reading=letter)], ["NFD"])
    assert transcript.reading is not None
    assert transcript.reading.text == "\u0627\u0653"
    assert [c.character for c in transcript.reading.characters] == ["\u0653", "\u0627"]


def test_modern_type() -> None:
    given = page("Wa\u017f\u017fer \ufb01nden \ufb05il œuvre")
    assert texts(to_form(given, ["modern"])) == ["Wasser finden stil œuvre"]
    assert boxes(to_form(given, ["modern"])) == boxes(given)


@pytest.mark.parametrize("hyphen", "-\u00ac\u00ad\u2010\u2e17")
def test_a_divided_word_is_whole_in_its_first_line(hyphen: str) -> None:
    given = page(f"die Men{hyphen}", "schen, und", "alles")
    joined = to_form(given, ["modern"])
    assert texts(joined) == ["die Menschen,", "und", "alles"]
    assert boxes(joined)[0] == boxes(given)[0]
    assert boxes(joined)[1:] == [boxes(given)[1][1:], boxes(given)[2]]


def test_a_word_over_three_lines() -> None:
    assert texts(to_form(page("Do-", "nau-", "dampf ab"), ["modern"])) == ["Donaudampf", "", "ab"]


@pytest.mark.parametrize(
    "lines",
    [
        ("Sachsen-", "Weimar"),
        ("um 1789-", "bis"),
        ("a -", "bis"),
        ("Men-", "1 und"),
        ("Men-", None, "schen"),
        ("\u05d0\u05d1-", "\u05d2\u05d3"),
        ("Men-",),
    ],
)
def test_what_is_no_divided_word_stays(lines: tuple[str | None, ...]) -> None:
    given = page(*lines)
    assert to_form(given, ["modern"]) == given


def test_lines_by_themselves_are_not_joined() -> None:
    given = [replace(t, input=replace(t.input, number=None)) for t in page("Men-", "schen")]
    assert to_form(given, ["modern"]) == given


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("ligatures", "l\u2019a\u017f\u017fe\u017ft ¬ \u017fi ; ici !"),
        ("long-s", "l\u2019asse\ufb05 ¬ si ; ici !"),
        ("apostrophes", "l'a\u017f\u017fe\ufb05 ¬ \u017fi ; ici !"),
        ("hyphens", "l\u2019a\u017f\u017fe\ufb05 - \u017fi ; ici !"),
        ("spaces", "l\u2019a\u017f\u017fe\ufb05 ¬ \u017fi; ici!"),
    ],
)
def test_each_form_by_itself(form: str, text: str) -> None:
    assert texts(to_form(page("l\u2019a\u017f\u017fe\ufb05 ¬ \u017fi ; ici !"), [form])) == [text]


def test_forms_together_and_as_a_measure_takes_them() -> None:
    line = "l\u2019a\u017f\u017fe\ufb05 ¬ \u017fi ; ici !"
    assert (
        texts(to_form(page(line), ["spaces", "hyphens", "apostrophes", "modern"]))
        == ["l'assest - si; ici!"]
        == [fold(line)]
    )
    assert texts(to_form(page("Men\u2e17", "\u017fchen !"), ["hyphens", "words", "spaces"])) == ["Men\u017fchen!", ""]


def test_a_space_before_punctuation_in_right_to_left_script() -> None:
    """Its characters go from left to right, as they stand on the page."""
    signs = "! \u05d1\u05d0"
    characters = tuple(Character(sign, i / 4, (i + 1) / 4, 0.9) for i, sign in enumerate(signs))
    reading = Reading(signs[::-1], 0.9, 0, characters)
    (transcript,) = to_form([replace(page("a")[0], reading=reading)], ["spaces"])
    assert transcript.reading is not None
    assert transcript.reading.text == "\u05d0\u05d1!"
    assert [c.character for c in transcript.reading.characters] == ["!", "\u05d1", "\u05d0"]
