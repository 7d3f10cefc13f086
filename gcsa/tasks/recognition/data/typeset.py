"""Training texts set in fonts, beside the scans: print that a recogniser has not seen, at no cost of transcription.

A text is set in today's letters (a long s as a round one, which later print has), in some lines with a number, a roman
numeral or letters at random in the place of a word, so that what the scans hold seldom is read too.
"""

from __future__ import annotations

import logging
import random
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from gcsa._utils.errors import UserError
from gcsa.images.folders import list_files
from gcsa.tasks.recognition.data.charset import normalize

SUFFIXES = (".ttf", ".otf", ".woff", ".woff2")
SIZE = 44
"""Pixels of the em: a line is some 50 pixels high, and then fitted to the recogniser's height."""
RARE_LETTERS = "kwKWxyzjqXYZJQHUGVBF"
MODERN = str.maketrans({"\N{LATIN SMALL LETTER LONG S}": "s"})
HYPHENS = str.maketrans({"¬": "-"})
"""Transcriptions write a word broken at the end of a line with ¬; print has a hyphen there."""

log = logging.getLogger(__name__)


def list_fonts(folder: Path) -> list[Path]:
    """The fonts in `folder`, by name. Raises ValueError where there are none."""
    fonts = list_files(folder, SUFFIXES)
    if not fonts:
        raise UserError(f"data.fonts={folder} holds no fonts ({', '.join(SUFFIXES)})", "fonts.none")
    return fonts


def set_lines(texts: Sequence[str], fonts: Sequence[Path], seed: int) -> Iterator[tuple[str, Image.Image]]:
    """Each of `texts` as it is set, and its image: grey, dark on light.

    Those that no font has all letters of are left out. So are those with right-to-left letters, which would need their
    order and their joined forms; the number of these is logged.
    Raises ValueError where all have such letters, and for a font that cannot be read.
    """
    leftward = [not {"R", "AL"}.isdisjoint(map(unicodedata.bidirectional, text)) for text in texts]
    if texts and all(leftward):
        raise UserError(
            "data.fonts sets text from left to right, and every training text is right-to-left: drop it",
            "fonts.right_to_left",
        )
    if any(leftward):
        log.warning("%d of %d texts hold right-to-left letters and are not set in fonts", sum(leftward), len(texts))
    for i, text in enumerate(texts):
        if leftward[i]:
            continue
        draw = random.Random(f"{seed} {i}")
        text = normalize(_varied(text.translate(MODERN), draw))
        able = [font for font in fonts if set(text.translate(HYPHENS)) <= _letters(font)]
        if text and able:
            yield text, _set(text, _font(draw.choice(able)), draw)


def _varied(text: str, draw: random.Random) -> str:
    words = text.split()
    if draw.random() < 0.3:
        words[draw.randrange(len(words))] = _rare_word(draw)
    if draw.random() < 0.05:
        words = [word.upper() for word in words[: draw.randint(1, 3)]]
    return " ".join(words)


def _rare_word(draw: random.Random) -> str:
    kind = draw.randrange(4)
    if kind == 0:
        return str(draw.randrange(2000)) + draw.choice(("", ".", ","))
    if kind == 1:
        return f"({draw.randrange(1, 30)})"
    if kind == 2:
        return "".join(draw.choice("IVXLC") for _ in range(draw.randint(1, 4))) + draw.choice(("", ".", ","))
    return "".join(draw.choice(RARE_LETTERS + "aeioulnrt" * 3) for _ in range(draw.randint(3, 8)))


def _set(text: str, font: ImageFont.FreeTypeFont, draw: random.Random) -> Image.Image:
    """One line, its words parted as justified print parts them; capitals are sometimes spaced."""
    shown = text.translate(HYPHENS)
    gap = draw.uniform(0.2, 0.6) * SIZE
    spacing = draw.uniform(0.15, 0.7) * SIZE if shown.isupper() and draw.random() < 0.5 else draw.uniform(-0.2, 0.8)
    _, top, _, bottom = font.getbbox("Ébgpj")
    above, below = (draw.uniform(0.02, 0.25) * SIZE for _ in range(2))
    left = draw.uniform(0.05, 0.4) * SIZE
    places, x = [], left
    for word in shown.split(" "):
        for letter in word:
            places.append((x, letter))
            x += font.getlength(letter) + spacing
        x += gap
    canvas = Image.new("L", (round(x - gap + left), round(bottom - top + above + below)), 255)
    pen = ImageDraw.Draw(canvas)
    for x, letter in places:
        pen.text((x, above - top), letter, font=font, fill=0)
    return canvas


@lru_cache
def _font(path: Path) -> ImageFont.FreeTypeFont:
    with _named(path):
        return ImageFont.truetype(str(path), SIZE)


@lru_cache
def _letters(path: Path) -> frozenset[str]:
    """The characters of a font; the space needs no glyph."""
    from fontTools.ttLib import TTFont

    with _named(path), path.open("rb") as file, TTFont(file, lazy=True) as font:
        return frozenset(map(chr, font.getBestCmap())) | {" "}


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # a damaged font raises whatever its readers stumble over
        raise UserError(
            f"{path} cannot be read as a font ({error!r:.200}): remove or replace it", "fonts.unreadable"
        ) from error
