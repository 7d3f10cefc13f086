"""Forms of the text that is written: composed or decomposed letters, and what transcribers write in different ways.

Lines stay where they are, and so do all words but those that a hyphen divides.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from gcsa.tasks.recognition.choices import MODERN
from gcsa.tasks.recognition.pages.inputs import Transcript
from gcsa.tasks.recognition.reading import Character, Reading

SIGNS: dict[str, dict[int, str]] = {
    "ligatures": {code: unicodedata.normalize("NFKC", chr(code)) for code in range(0xFB00, 0xFB07)}
    | {0xFB05: "\u017ft"},
    "long-s": {0x017F: "s"},
    "apostrophes": dict.fromkeys((0x02BC, 0x2018, 0x2019, 0x201B), "'"),
    "hyphens": dict.fromkeys((0x00AC, 0x00AD, 0x2010, 0x2011, 0x2E17), "-"),
}
"""What is written for a character, by form; the Latin ligatures are those of Unicode."""
SPACE = re.compile(r" (?=[,.;:!?)\]\u00bb])")
"""Before a sign of punctuation."""
DIVIDED = re.compile(r"(?<=[^\W\d_])[-\u00ac\u00ad\u2010\u2e17]$")
"""A hyphen behind a letter at the end of a line, as it is printed or as transcribers write it."""
CONTINUED = re.compile(r"[^\W\d_]\S*")
"""The rest of a word that was divided, at the start of the next line."""


def to_form(transcripts: Sequence[Transcript], forms: Collection[str]) -> list[Transcript]:
    """The transcripts of a page, or of a line by itself, in each of the `forms`, of `FORMS`; without one, as they are, which is NFC.

    ligatures: Latin ones as letters. long-s: as s. apostrophes: all as '. hyphens: all as -, also \u00ac and \u2e17. spaces: none before a sign
    of punctuation.
    words: one that a hyphen divides at the end of a line is written in that line, in the place of its first part. Lines in right-to-left
    script keep their hyphens.
    modern: ligatures, long-s and words.
    NFD: letters and accents apart; the accent stands at the end of its letter.
    """
    wanted, result = {*forms, *(MODERN if "modern" in forms else ())}, list(transcripts)
    for name, signs in SIGNS.items():
        if name in wanted:
            result = [_mapped(transcript, partial(_signs_of, signs)) for transcript in result]
    if "spaces" in wanted:
        result = [_mapped(transcript, _without_spaces) for transcript in result]
    if "words" in wanted:
        result = _joined(result)
    if "NFD" in wanted:
        result = [_mapped(transcript, _decomposed) for transcript in result]
    return result


def fold(text: str) -> str:
    """A text in which neither ligatures, long s, apostrophes, hyphens nor spaces before punctuation tell two transcriptions apart."""
    for signs in SIGNS.values():
        text = text.translate(signs)
    return SPACE.sub("", text)


def _mapped(transcript: Transcript, convert: Callable[[Reading], Reading]) -> Transcript:
    return transcript if transcript.reading is None else replace(transcript, reading=convert(transcript.reading))


def _signs_of(signs: dict[int, str], reading: Reading) -> Reading:
    characters = [_spread(c.character.translate(signs), c.start, c.end, c.confidence) for c in reading.characters]
    return replace(reading, text=reading.text.translate(signs), characters=tuple(chain.from_iterable(characters)))


def _without_spaces(reading: Reading) -> Reading:
    """Characters go from left to right: what stands behind a space in right-to-left script is on its left."""
    signs = [character.character for character in reading.characters]
    behind = ["", *signs] if _is_leftward(reading.text) else [*signs[1:], ""]
    kept = [c for c, sign in zip(reading.characters, behind, strict=False) if not SPACE.match(c.character + sign)]
    return replace(reading, text=SPACE.sub("", reading.text), characters=tuple(kept))


def _decomposed(reading: Reading) -> Reading:
    characters = [_apart(character) for character in reading.characters]
    text = unicodedata.normalize("NFD", reading.text)
    return replace(reading, text=text, characters=tuple(chain.from_iterable(characters)))


def _apart(character: Character) -> list[Character]:
    """A letter and its accents behind it; before it where it is read from right to left, since characters go from left to right."""
    letter, *accents = list(unicodedata.normalize("NFD", character.character))
    if _is_leftward(letter):
        first = [character._replace(character=accent, end=character.start) for accent in reversed(accents)]
        return [*first, character._replace(character=letter)]
    return [character._replace(character=letter)] + [
        character._replace(character=accent, start=character.end) for accent in accents
    ]


def _is_leftward(text: str) -> bool:
    return any(unicodedata.bidirectional(character) in ("R", "AL") for character in text)


def _spread(text: str, start: float, end: float, confidence: float) -> list[Character]:
    """The letters of `text` side by side from `start` to `end`."""
    step = (end - start) / max(1, len(text))
    return [Character(letter, start + i * step, start + (i + 1) * step, confidence) for i, letter in enumerate(text)]


def _joined(transcripts: list[Transcript]) -> list[Transcript]:
    """The lines of a page with the words whole that a hyphen divides at the end of a line."""
    result = list(transcripts)
    for i in reversed(range(len(result) - 1)):  # from the end: a word may go over three lines
        upper, lower = result[i].reading, result[i + 1].reading
        if upper is None or lower is None or result[i].input.number is None or not _is_divided(upper, lower):
            continue
        result[i] = replace(result[i], reading=_with_rest(upper, lower))
        result[i + 1] = replace(result[i + 1], reading=_without_rest(lower))
    return result


def _is_divided(upper: Reading, lower: Reading) -> bool:
    """Whether a word goes on from one line to the next: behind a hyphen a capital or a digit begins another word."""
    return (
        not _is_leftward(upper.text + lower.text)
        and upper.orientation == lower.orientation
        and DIVIDED.search(upper.text) is not None
        and CONTINUED.match(lower.text) is not None
        and not lower.text[0].isupper()
    )


def _rest(text: str) -> str:
    return text.partition(" ")[0]


def _with_rest(upper: Reading, lower: Reading) -> Reading:
    """A line with the rest of its last word in the place of the hyphen."""
    rest, characters = _rest(lower.text), upper.characters
    if characters:
        hyphen = characters[-1]
        confidence = [c.confidence for c in lower.characters[: len(rest)]]
        mean = sum(confidence) / len(confidence) if confidence else hyphen.confidence
        characters = (*characters[:-1], *_spread(rest, hyphen.start, hyphen.end, mean))
    return replace(upper, text=upper.text[:-1] + rest, characters=characters)


def _without_rest(lower: Reading) -> Reading:
    rest = _rest(lower.text)
    return replace(lower, text=lower.text[len(rest) :].lstrip(), characters=lower.characters[len(rest) + 1 :])
