"""Forms of the text that is written: composed or decomposed letters, or the spelling of today's type.

Lines stay where they are, and so do all words but those that a hyphen divides.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace

from gcsa.tasks.recognition.pages.inputs import Transcript
from gcsa.tasks.recognition.reading import Character, Reading

LIGATURES = {code: unicodedata.normalize("NFKC", chr(code)) for code in range(0xFB00, 0xFB07)}
"""Latin ones of Unicode: U+FB05 is long s and t."""
MODERN = str.maketrans(LIGATURES | {0x017F: "s"})
DIVIDED = re.compile(r"(?<=[^\W\d_])[-\u00ac\u00ad\u2010\u2e17]$")
"""A hyphen behind a letter at the end of a line, as it is printed or as transcribers write it."""
CONTINUED = re.compile(r"[^\W\d_]\S*")
"""The rest of a word that was divided, at the start of the next line."""


def to_form(transcripts: Sequence[Transcript], form: str | None) -> list[Transcript]:
    """The transcripts of a page, or of a line by itself, in one of `FORMS`; without one, as they are, which is NFC.

    NFD: letters and accents apart; the accent stands at the end of its letter.
    modern: long s as s, Latin ligatures as letters, and a word that a hyphen divides at the end of a line is written in that line,
    in the place of its first part. Lines in right-to-left script keep their hyphens.
    """
    if form in (None, "NFC"):
        return list(transcripts)
    if form == "NFD":
        return [
            _mapped(transcript, _decomposed, lambda text: unicodedata.normalize("NFD", text))
            for transcript in transcripts
        ]
    return _joined([_mapped(transcript, _modern, lambda text: text.translate(MODERN)) for transcript in transcripts])


def _mapped(
    transcript: Transcript,
    split: Callable[[Character], list[Character]],
    convert: Callable[[str], str],
) -> Transcript:
    reading = transcript.reading
    if reading is None:
        return transcript
    characters = tuple(part for character in reading.characters for part in split(character))
    return replace(transcript, reading=replace(reading, text=convert(reading.text), characters=characters))


def _decomposed(character: Character) -> list[Character]:
    """A letter and its accents behind it; before it where it is read from right to left, since characters go from left to right."""
    letter, *accents = list(unicodedata.normalize("NFD", character.character))
    if unicodedata.bidirectional(letter) in ("R", "AL"):
        first = [character._replace(character=accent, end=character.start) for accent in reversed(accents)]
        return [*first, character._replace(character=letter)]
    return [character._replace(character=letter)] + [
        character._replace(character=accent, start=character.end) for accent in accents
    ]


def _modern(character: Character) -> list[Character]:
    return _spread(character.character.translate(MODERN), character.start, character.end, character.confidence)


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
    leftward = any(unicodedata.bidirectional(c) in ("R", "AL") for c in upper.text + lower.text)
    return (
        not leftward
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
