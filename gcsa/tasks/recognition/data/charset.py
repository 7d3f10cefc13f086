"""Characters and their CTC classes.

The unit is one code point after Unicode normalisation form C (NFC): class 0 is the CTC blank, class i + 1 the i-th
character. Text is in logical order everywhere, which for Arabic or Hebrew means the first letter read comes first; only
CTC, which goes along the line from left to right, is given `display_order`.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from gcsa._utils.errors import MissingExtraError, UserError
from gcsa.weights import Weights
from gcsa.weights.files import MOST_NAMES

INVISIBLE = dict.fromkeys([0x200B, 0x200E, 0x200F, *range(0x202A, 0x202F), 0x2060, *range(0x2066, 0x206A), 0xFEFF])
"""Marks that direct the display of bidirectional text, say where a line may be broken, and the byte-order mark: no ink, so nothing to read. Joiners
(U+200C and U+200D) change the letters beside them, and a soft hyphen is written for one in print."""

FREE_ACCENTS = 0xE0100
"""The first of 240 combining characters that no text holds: they choose between forms of Chinese characters."""


def normalize(text: str) -> str:
    """NFC without the `INVISIBLE` characters, every run of white space one space, none at the ends."""
    return " ".join(unicodedata.normalize("NFC", text.translate(INVISIBLE)).split())


def display_order(text: str) -> str:
    """The characters from left to right, as they stand on the page, by Unicode's bidirectional algorithm (UAX 9).

    Brackets are as they are printed. Applied to its own result it gives back the logical order; for this the direction
    of a line is that of most of its letters. It need not where Latin words stand among them: a number before one moves.
    Text without right-to-left letters stays as it is. Raises ImportError where python-bidi is missing.
    """
    kinds = Counter(map(unicodedata.bidirectional, text))
    leftward = kinds["R"] + kinds["AL"]
    if leftward == 0:
        return text
    try:
        from bidi.algorithm import get_display  # that of bidi itself does not mirror brackets
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "right-to-left text needs python-bidi: pip install 'gcsa-vit[ocr]'", "bidi.missing"
        ) from error
    # It drops what joins or parts letters, and fails on what has no direction: they go as accents of the letter before.
    others = sorted({character for character in text if unicodedata.bidirectional(character) in ("BN", "")})
    accents = {ord(character): chr(FREE_ACCENTS + i) for i, character in enumerate(others)}
    shown = str(get_display(text.translate(accents), base_dir="R" if leftward >= kinds["L"] else "L"))
    return shown.translate({ord(accent): character for character, accent in accents.items()})


def describe(character: str) -> str:
    """A character with its code and name: 'ſ' (U+017F LATIN SMALL LETTER LONG S)."""
    return f"{character!r} (U+{ord(character):04X} {unicodedata.name(character, 'without a name')})"


@dataclass(frozen=True)
class Charset:
    """The characters a recogniser can write, in the order of their classes; `len` counts the blank too.

    Raises:
        ValueError: a character twice, or one that `normalize` would change.
    """

    characters: str

    def __post_init__(self) -> None:
        for character, count in Counter(self.characters).items():
            if count > 1:
                raise UserError(
                    f"the charset holds {describe(character)} {count} times: a character has one class", "charset.twice"
                )
            if character != " " and normalize(character) != character:
                raise UserError(
                    f"the charset holds {describe(character)}, which no normalised text does: remove it",
                    "charset.not_normalised",
                )

    @cached_property
    def _classes(self) -> dict[str, int]:
        return {character: i for i, character in enumerate(self.characters, 1)}

    def __len__(self) -> int:
        return len(self.characters) + 1

    def __contains__(self, character: str) -> bool:
        return character in self._classes

    def encode(self, text: str, known_only: bool = False) -> list[int]:
        """The classes of the normalised text. Characters that have none are left out if `known_only`, else a ValueError
        names them."""
        text = normalize(text)
        if known_only:  # not normalised again, as an accent left without its letter may fit the one before
            text = " ".join("".join(character for character in text if character in self).split())
        if unknown := sorted(set(text) - self._classes.keys()):
            raise UserError(
                f"{text!r} holds {', '.join(map(describe, unknown))}, not in the charset of {len(self) - 1}",
                "charset.unknown",
            )
        return [self._classes[character] for character in text]

    def decode(self, classes: Iterable[int]) -> str:
        """The text of `classes`; blanks write nothing."""
        return "".join(self.characters[i - 1] for i in classes if i)

    def unknown(self, texts: Iterable[str]) -> Counter[str]:
        """How often each character outside the charset occurs in `texts`."""
        counts = Counter(character for text in texts for character in normalize(text))
        return Counter({character: count for character, count in counts.items() if character not in self})

    def extended(self, texts: Iterable[str]) -> "Charset":
        """This charset with the new characters of `texts` behind the old ones, which keep their classes, sorted by
        code point."""
        return Charset(self.characters + "".join(sorted(self.unknown(texts))))


def stored_characters(weights: Weights) -> str:
    """The charset of a recogniser in `weights`. Raises UserError for weights without one, and for a damaged entry."""
    characters = weights.entry(
        "characters",
        lambda value: isinstance(value, str) and len(value) <= MOST_NAMES,
        f"a text of at most {MOST_NAMES} characters",
    )
    if characters is None:
        raise UserError(f"{weights.source} has no characters: name weights of a recogniser", "weights.characters")
    return str(characters)
