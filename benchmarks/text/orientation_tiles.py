"""Tiles of rendered and scanned pages, from which the network of `gcsa orient` learns: `python -m benchmarks.text.orientation_tiles SOURCES`.

SOURCES is a folder with `fonts/` (TrueType, OpenType and WOFF files, in any folders), `udhr/` (the declaration of human rights as
unicode-org/udhr stores it, `udhr_KEY.xml`), `lines/` (folders of training lines, see `gcsa.tasks.recognition.data`), `scans/SCRIPT/`
(upright pages) and `pictures/` (images that have no text). None of it is in the repository. Written are `tiles/NUMBER.npz`, each with the
tiles of 20 pages: `tiles` (N, 96, 96), int8, the values times 31; `known` (N,), whether up is to be learnt or nothing is; `script` (N,).

Each page has one script, degraded as scans are. What has no orientation that could be known has equal probabilities as target: pictures,
music, drawings, noise, and scripts of `STRANGE`, which stand for those that the network never saw.
"""

from __future__ import annotations

import argparse
import html
import io
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch
from fontTools.ttLib import TTFont
from PIL import Image, ImageDraw, ImageFont
from scipy.ndimage import gaussian_filter, grey_dilation, grey_erosion, zoom

from gcsa._utils.arrays import Array
from gcsa.tasks.recognition.pages.orientation import tiles_of

LONG = 1024
"""Pixels of the longer side of a page: half of what `find_orientation` sees, as tiles are all that is kept."""
OVER = 2
"""Pages are drawn so many times as large."""
LANGUAGES = {
    "hebrew": "heb ydd",
    "arabic": "arb pes_1 urd",
    "syriac": "aii",
    "devanagari": "hin mar nep san",
    "bengali": "ben",
    "thai": "tha",
    "greek": "ell_monotonic ell_polytonic",
    "cyrillic": "rus ukr bul srp_cyrl",
    "georgian": "kat",
    "armenian": "hye",
    "chinese": "cmn_hans cmn_hant",
    "japanese": "jpn",
    "korean": "kor",
    "latin": "eng fra deu_1996 vie tur pol ces",
    "ethiopic": "amh tir",
    "gujarati": "guj",
    "gurmukhi": "pan",
    "kannada": "kan",
    "khmer": "khm",
    "lao": "lao",
    "malayalam": "mal",
    "burmese": "mya",
    "sinhala": "sin",
    "tamil": "tam",
    "telugu": "tel",
    "thaana": "div",
    "tibetan": "bod",
}
ISSUE = 14
"""So many of them, the first, are always trained on."""
HELD_OUT = tuple(sorted(random.Random(55).sample(sorted(list(LANGUAGES)[ISSUE:]), 2)))
"""Drawn by chance: the network never sees them."""
UNSPACED = {"thai", "chinese", "japanese", "khmer", "lao", "burmese", "tibetan"}
RIGHT_TO_LEFT = {"hebrew", "arabic", "syriac", "thaana"}
VERTICAL = {"chinese", "japanese", "korean"}
GOTHIC = re.compile("fraktur|pirata", re.I)
HAND = re.compile(
    "dancing|caveat|apple|aurore|delafield|marck|badscript|bad-script|kurale|handwriting|ecolier|femkeklaver|breip|isabella|klee|long-cang"
    "|ma-shan|yuji|nanumpen|nanum-pen|gaegu|kalam|charm|sriracha|chancery",
    re.I,
)
TYPED = re.compile(
    r"(courier-prime|cutive-mono|special-elite)-latin-\d+-normal|Liberation ?Mono-|DejaVuSansMono|FreeMono|NotoSansMono-(Regular|Light|Medium)\."
)
STRANGE = [
    "Balinese",
    "Bamum",
    "Batak",
    "Buginese",
    "CanadianAboriginal",
    "Cham",
    "Cuneiform",
    "EgyptianHieroglyphs",
    "Javanese",
    "Lepcha",
    "LinearB",
    "MeeteiMayek",
    "NKo",
    "OlChiki",
    "Sundanese",
    "TaiTham",
    "Tifinagh",
    "Vai",
    "Yi",
    "Adlam",
]
"""Of the names of Noto's fonts. Their characters follow each other by chance."""
SHARES = {
    "latin": 5,
    "gothic": 3,
    "hand": 3,
    "typed": 4,
    "lines": 6,
    "scans": 10,
    "strange": 4,
    "picture": 3,
    "music": 1,
    "drawing": 1,
    "noise": 1,
}
"""Pages of each kind; of a script that is not named, 2.2, and of one that the issue does not name, .9."""
PAGES = 20

Draw = Callable[[random.Random], tuple[Array, bool]]


def texts(folder: Path) -> dict[str, list[str]]:
    """The words of each script; characters of Chinese, Japanese and Korean are joined by common ones of their standards."""
    words: dict[str, list[str]] = {}
    for script, keys in LANGUAGES.items():
        pages = [html.unescape((folder / f"udhr_{key}.xml").read_text(encoding="utf-8")) for key in keys.split()]
        words[script] = [
            word for page in pages for part in re.findall(r"<(?:para|title)>([^<]+)", page) for word in part.split()
        ]
    common = {"chinese": ("gb2312", 0xB0, 0xD7), "japanese": ("euc_jp", 0xB0, 0xCF), "korean": ("euc_kr", 0xB0, 0xC8)}
    for script, (code, first, last) in common.items():
        letters = [bytes([a, b]).decode(code, "ignore") for a in range(first, last + 1) for b in range(0xA1, 0xFF)]
        letters, draw = list(filter(None, letters)), random.Random(0)
        more = ["".join(draw.choices(letters, k=draw.randint(1, 4))) for _ in range(3000)]
        if script == "japanese":
            kana = [chr(code) for code in range(0x3041, 0x3094)] * 2 + [chr(code) for code in range(0x30A2, 0x30FB)]
            more = [word[:2] + "".join(draw.choices(kana, k=draw.randint(1, 4))) for word in more]
        words[script] += more
        draw.shuffle(words[script])
    return words


def fonts_of(folder: Path, words: dict[str, list[str]]) -> dict[str, dict[str, list[str]]]:
    """For each script the families, and their files, that have 98 % of its letters; also `gothic`, `hand`, `typed` and `strange`."""
    counts = {script: Counter(filter(str.isalpha, "".join(text))) for script, text in words.items()}
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for file in sorted(folder.rglob("*")):
        if file.suffix.lower() not in (".ttf", ".otf", ".ttc", ".woff"):
            continue
        try:
            with TTFont(file, fontNumber=0, lazy=True) as font:
                known = set(font.getBestCmap() or {})
        except Exception:  # whatever fontTools says of a broken font
            continue
        family = re.split(r"[-_]|(?<=[a-z])(?=Condensed|Mono)", file.stem)[0]
        name = str(file)
        strange = next((script for script in STRANGE if re.match(f"Noto(Sans|Serif){script}-", file.name)), None)
        if strange is not None:
            found["strange"][strange].append(name)
            continue
        for script, count in counts.items():
            if sum(n for c, n in count.items() if ord(c) in known) >= 0.98 * count.total():
                found[script][family].append(name)
        if all(ord(c) in known for c in "abcdefghijklmnopqrstuvwxyzABCDEFG,."):
            for kind, pattern in (("gothic", GOTHIC), ("hand", HAND), ("typed", TYPED)):
                if pattern.search(name):
                    found[kind][family].append(name)
    return {script: dict(families) for script, families in found.items()}


@cache
def characters_of(file: str) -> frozenset[str]:
    with TTFont(file, fontNumber=0, lazy=True) as font:
        return frozenset(map(chr, font.getBestCmap()))


def letters_of(file: str) -> list[str]:
    """Of a strange script, those beyond U+0500."""
    return sorted(c for c in characters_of(file) if ord(c) > 0x500 and not 0x2000 <= ord(c) < 0x2C00 and c.isalpha())


def passage(draw: random.Random, script: str, words: list[str], length: int) -> str:
    """About `length` characters of text."""
    if script in UNSPACED:
        text = "".join(draw.choice(words) for _ in range(6)) + "".join(
            words[(start := draw.randrange(len(words))) : start + length]
        )
        start = draw.randrange(max(1, len(text) - length))
        return text[start : start + length]
    start, parts, have = draw.randrange(len(words)), [], 0
    while have < length:
        word = words[start % len(words)] if draw.random() < 0.9 else draw.choice(words)
        if draw.random() < 0.03:
            word = str(draw.randrange(10 ** draw.randint(1, 4)))
        parts.append(word)
        have += len(word) + 1
        start += 1
    return " ".join(parts)


class Sheet:
    """A page on which text of one script is drawn, `OVER` times as large as it will be."""

    def __init__(self, draw: random.Random, script: str, words: list[str], family: list[str]) -> None:
        self.draw, self.script, self.words, self.files = draw, script, words, family
        ratio = draw.uniform(0.62, 0.82)
        long, short = LONG * OVER, int(LONG * OVER * ratio)
        self.width, self.height = (long, short) if draw.random() < 0.12 else (short, long)
        self.image = Image.new("L", (self.width, self.height), 255)
        self.pen = ImageDraw.Draw(self.image)
        self.em = int(OVER * np.exp(draw.uniform(np.log(13), np.log(52))))
        self.file = draw.choice(family)
        self.pitch = draw.uniform(1.15, 1.9)

    def passage(self, length: int) -> str:
        """Text without what the font does not have."""
        known = characters_of(self.file)
        text = passage(self.draw, self.script, self.words, length)
        return "".join(c for c in text if c in known or c == " ")

    def font(self, em: int) -> ImageFont.FreeTypeFont:
        return ImageFont.truetype(self.file, em)

    def line(self, x: int, y: int, width: int, em: int, align: str = "start", share: float = 1.0) -> None:
        """A line of text with the base line y, from x on and `width` long."""
        font = self.font(em)
        text = self.passage(max(3, int(3.2 * width * share / em)))
        joint = "" if self.script in UNSPACED else " "
        parts = list(text) if joint == "" else text.split()
        longest = font.getlength(text)
        if longest > width * share:
            parts = parts[: max(1, int(len(parts) * width * share / longest))]
        text = joint.join(parts)
        if font.getlength(text) > 1.1 * width:
            return
        if align == "middle":
            self.pen.text((x + width / 2, y), text, 0, font, anchor="ms")
        elif (self.script in RIGHT_TO_LEFT) != (align == "end"):
            self.pen.text((x + width, y), text, 0, font, anchor="rs")
        else:
            self.pen.text((x, y), text, 0, font, anchor="ls")

    def block(self, x: int, y: int, width: int, height: int, em: int) -> None:
        """Paragraphs, the last line of each short."""
        pitch = int(em * self.pitch)
        for base in range(y + em, y + height, pitch):
            roll = self.draw.random()
            self.line(x, base, width, em, share=self.draw.uniform(0.2, 0.8) if roll < 0.15 else 1.0)

    def columns(self) -> None:
        count = self.draw.choice((1, 1, 1, 2, 2, 3))
        left, top = int(self.width * self.draw.uniform(0.04, 0.14)), int(self.height * self.draw.uniform(0.04, 0.14))
        gap = int(0.04 * self.width)
        width = (self.width - 2 * left - gap * (count - 1)) // count
        if self.draw.random() < 0.4:
            self.line(
                left,
                top,
                self.width - 2 * left,
                int(self.em * self.draw.uniform(1, 2.4)),
                "middle",
                self.draw.uniform(0.2, 0.7),
            )
            top += 2 * self.em
        for column in range(count):
            bottom = self.height - top if self.draw.random() < 0.7 else int(self.height * self.draw.uniform(0.3, 0.9))
            self.block(left + column * (width + gap), top, width, bottom - top, self.em)

    def table(self) -> None:
        """Rows and columns with or without rules, some cells empty: also a form."""
        left, top = int(self.width * 0.06), int(self.height * self.draw.uniform(0.05, 0.2))
        columns, row = self.draw.randint(2, 6), int(self.em * self.draw.uniform(1.6, 3.2))
        width, filled = (self.width - 2 * left) // columns, self.draw.uniform(0.4, 1)
        ruled, stroke = self.draw.random() < 0.7, self.draw.choice((1, 2, 3, 5))
        self.line(left, top - self.em // 2, self.width - 2 * left, int(1.3 * self.em), "middle", 0.5)
        for y in range(top, self.height - row - left, row):
            if ruled:
                self.pen.line((left, y, left + columns * width, y), 0, stroke)
            for column in range(columns):
                if self.draw.random() < filled:
                    self.line(
                        left + column * width + self.em // 3,
                        y + int(0.5 * row + 0.4 * self.em),
                        width - self.em // 2,
                        self.em,
                        share=self.draw.uniform(0.3, 1),
                    )
        if ruled:
            for column in range(columns + 1):
                self.pen.line((left + column * width, top, left + column * width, self.height - row - left), 0, stroke)

    def sparse(self) -> None:
        """A title page, a letter, a label: few lines."""
        left = int(self.width * 0.1)
        for _ in range(self.draw.randint(2, 8)):
            em = int(self.em * self.draw.uniform(0.8, 2.2))
            self.line(
                left,
                self.draw.randint(2 * em, self.height - em),
                self.width - 2 * left,
                em,
                self.draw.choice(("start", "middle", "end")),
                self.draw.uniform(0.15, 0.9),
            )

    def receipt(self) -> None:
        width = int(self.width * self.draw.uniform(0.3, 0.5))
        left, top = int(self.width * self.draw.uniform(0.1, 0.5)), int(self.height * 0.06)
        em = min(self.em, width // 12)
        for y in range(top + em, self.height - top, int(em * 1.4)):
            self.line(left, y, width, em, share=self.draw.uniform(0.3, 0.7))
            if self.draw.random() < 0.6:
                self.pen.text((left + width, y), f"{self.draw.uniform(0, 99):.2f}", 0, self.font(em), anchor="rs")

    def vertical(self) -> None:
        """Columns of characters from the right to the left."""
        top, pitch = int(self.height * self.draw.uniform(0.05, 0.12)), int(self.em * self.draw.uniform(1.3, 1.9))
        font, rows = self.font(self.em), self.draw.choice((1, 1, 2, 3))
        high = (self.height - top * 2 - (rows - 1) * self.em) // rows
        for row in range(rows):
            for x in range(self.width - top, top, -pitch):
                letters = high // int(self.em * 1.05)
                text = self.passage(letters).replace(" ", "")[:letters]
                if self.draw.random() < 0.15:
                    text = text[: self.draw.randint(1, letters)]
                self.pen.text((x, top + row * (high + self.em)), text, 0, font, direction="ttb", anchor="rt")

    def fill(self) -> Array:
        if self.script in VERTICAL and self.draw.random() < (0.6 if self.script == "japanese" else 0.3):
            self.vertical()
        else:
            self.draw.choice((self.columns,) * 5 + (self.table,) * 2 + (self.sparse, self.receipt))()
        return np.asarray(self.image)


def typeset(draw: random.Random, script: str, words: list[str], families: dict[str, list[str]]) -> tuple[Array, bool]:
    for _ in range(5):
        page = Sheet(draw, script, words, families[draw.choice(sorted(families))]).fill()
        if (page < 128).mean() > 0.002:
            break
    return page, True


def strange(draw: random.Random, families: dict[str, list[str]]) -> tuple[Array, bool]:
    files = families[draw.choice(sorted(families))]
    letters = letters_of(files[0])
    words = ["".join(draw.choices(letters, k=draw.randint(1, 8))) for _ in range(400)]
    return Sheet(draw, "strange", words, files).fill(), False


def scanned_lines(draw: random.Random, folders: list[list[Path]]) -> tuple[Array, bool]:
    """A page of training lines of one document, between 14 and 40 pixels high."""
    height = OVER * int(np.exp(draw.uniform(np.log(14), np.log(44))))
    page = Image.new("L", (int(LONG * OVER * draw.uniform(0.62, 0.8)), LONG * OVER), 255)
    files, left = draw.choice(folders), int(page.width * draw.uniform(0.03, 0.12))
    start, y = draw.randrange(len(files)), draw.randint(20, 200)
    paper = None
    while y + height < page.height - 20:
        with Image.open(files[start % len(files)]) as line:
            line = line.convert("L").resize(
                (max(1, line.width * height // line.height), height), Image.Resampling.BICUBIC
            )
        if paper is None:
            paper = int(np.percentile(np.asarray(line), 80))
            page.paste(paper, (0, 0, *page.size))
        page.paste(line, (left, y))
        if line.width < 0.45 * page.width:
            page.paste(line, (left + line.width + height, y))
        y += int(height * draw.uniform(1.0, 1.15))
        start += 1
    return np.asarray(page), True


def scan(draw: random.Random, files: list[Path]) -> tuple[Array, bool]:
    """A part of a scanned page, which is as large as a third of it at least."""
    with Image.open(draw.choice(files)) as image:
        image.draft("L", (2600, 2600))
        grey = image.convert("L")
    share = draw.uniform(0.35, 1)
    width, height = int(grey.width * share), int(grey.height * share)
    left, top = draw.randint(0, grey.width - width), draw.randint(0, grey.height - height)
    factor = LONG * OVER / max(width, height) * draw.uniform(0.75, 1)
    part = grey.crop((left, top, left + width, top + height))
    return np.asarray(
        part.resize((max(200, int(width * factor)), max(200, int(height * factor))), Image.Resampling.BICUBIC)
    ), True


def picture(draw: random.Random, files: list[Path]) -> tuple[Array, bool]:
    """Photographs without text, one or several on the page, also as line screens have them."""
    page = Image.new("L", (int(LONG * OVER * 0.75), LONG * OVER), 255)
    for _ in range(draw.choice((1, 2, 6))):
        with Image.open(draw.choice(files)) as image:
            grey = image.convert("L")
        side = draw.randint(400, 1500)
        grey = grey.resize((side, side * grey.height // grey.width), Image.Resampling.BICUBIC)
        if draw.random() < 0.3:
            grey = grey.resize((grey.width // 4, grey.height // 4)).convert("1").convert("L").resize(grey.size)
        page.paste(
            grey.rotate(90 * draw.randrange(4), expand=True), (draw.randint(-100, 900), draw.randint(-100, 1300))
        )
    return np.asarray(page), False


def music(draw: random.Random, file: Path) -> tuple[Array, bool]:
    """Staves with heads, stems, beams and rests."""
    page = Image.new("L", (int(LONG * OVER * 0.75), LONG * OVER), 255)
    pen, gap = ImageDraw.Draw(page), draw.randint(10, 28)
    font = ImageFont.truetype(str(file), gap * 4)
    for y in range(100, page.height - 6 * gap, int(gap * draw.uniform(9, 14))):
        for line in range(5):
            pen.line((60, y + gap * line, page.width - 60, y + gap * line), 0, 2)
        if draw.random() < 0.8:
            pen.text((70, y + 4 * gap), draw.choice("\U0001d11e\U0001d122\U0001d121"), 0, font, anchor="ls")
        x = 70 + 5 * gap
        while x < page.width - 100:
            note, up = y + gap * draw.randint(-2, 11) / 2, draw.random() < 0.5
            pen.ellipse((x, note - gap / 2, x + 1.3 * gap, note + gap / 2), 0 if draw.random() < 0.8 else None, 0, 3)
            stem = x + 1.3 * gap if up else x
            pen.line((stem, note, stem, note + (-3.5 if up else 3.5) * gap), 0, 3)
            if draw.random() < 0.15:
                pen.line((x + 3 * gap, y, x + 3 * gap, y + 4 * gap), 0, 3)
            x += int(gap * draw.uniform(2, 5))
    return np.asarray(page), False


def drawing(draw: random.Random) -> tuple[Array, bool]:
    """Lines, curves, boxes, hatching and circles: plates, contours, plans."""
    page = Image.new("L", (int(LONG * OVER * 0.75), LONG * OVER), 255)
    pen = ImageDraw.Draw(page)
    for _ in range(draw.randint(20, 300)):
        x, y, size = draw.randint(0, page.width), draw.randint(0, page.height), draw.randint(20, 500)
        shape, stroke = draw.randrange(5), draw.choice((1, 2, 3, 6))
        if shape == 0:
            pen.line((x, y, x + draw.randint(-size, size), y + draw.randint(-size, size)), 0, stroke)
        elif shape == 1:
            pen.arc((x, y, x + size, y + draw.randint(20, 500)), draw.randint(0, 360), draw.randint(0, 360), 0, stroke)
        elif shape == 2:
            pen.rectangle((x, y, x + size, y + draw.randint(20, 500)), None, 0, stroke)
        elif shape == 3:
            step, slant = draw.randint(6, 20), draw.randint(-200, 200)
            for i in range(0, size, step):
                pen.line((x + i, y, x + i + slant, y + size), 0, stroke)
        else:
            steps = np.random.default_rng(draw.randrange(1 << 30)).normal(0, 12, (60, 2))
            walk = np.add((x, y), steps.cumsum(0))
            pen.line([tuple(point) for point in walk.tolist()], 0, stroke)
    return np.asarray(page), False


def noise(draw: random.Random) -> tuple[Array, bool]:
    rng = np.random.default_rng(draw.randrange(1 << 30))
    sigma = np.exp(draw.uniform(np.log(0.7), np.log(30)))
    blotches = gaussian_filter(rng.normal(size=(LONG * OVER, int(LONG * OVER * 0.75))).astype(np.float32), sigma)
    blotches /= blotches.std()
    if draw.random() < 0.4:
        blotches = np.where(blotches > draw.uniform(0.5, 2), -1.5, 1.5)
    return (180 + blotches * draw.uniform(3, 40)).clip(0, 255).astype(np.uint8), False


def degrade(page: Array, draw: random.Random, real: bool) -> Array:
    """The page at its own size, with paper, ink, blur, skew, noise and JPEG. `real`: a scan, which has most of these already."""
    rng = np.random.default_rng(draw.randrange(1 << 30))
    if not real and draw.random() < 0.3:
        page = (grey_erosion if draw.random() < 0.6 else grey_dilation)(page, (draw.choice((2, 3)),) * 2)
    skew = draw.gauss(0, 1.5) if draw.random() < 0.75 else draw.uniform(-12, 12)
    image = Image.fromarray(page).rotate(skew, Image.Resampling.BICUBIC, fillcolor=int(np.median(page)))
    image = image.resize((image.width // OVER, image.height // OVER), Image.Resampling.BOX)
    x = np.asarray(image, np.float32) / 255
    if not real:
        if draw.random() < 0.12:
            x = 1 - x
        if draw.random() < 0.15:  # print of the back
            x = np.minimum(x, 1 - draw.uniform(0.05, 0.3) * (1 - gaussian_filter(x[:, ::-1], 1.5)))
        ink, paper = draw.uniform(0, 0.35), draw.uniform(0.6, 1)
        grain = zoom(rng.normal(size=(12, 12)).astype(np.float32), (x.shape[0] / 12, x.shape[1] / 12), order=1)
        grain = grain[: x.shape[0], : x.shape[1]]
        x = (
            ink
            + (paper - ink) * x
            + draw.uniform(0, 0.1) * np.pad(grain, [(0, a - b) for a, b in zip(x.shape, grain.shape, strict=True)])
        )
    if draw.random() < 0.6:
        x = gaussian_filter(x, draw.uniform(0.2, 0.9 if real else 1.3))
    x = x + rng.normal(size=x.shape).astype(np.float32) * draw.choice((0, 0.01, 0.02, 0.05, 0.1))
    if draw.random() < 0.15:  # bitonal
        x = (x > gaussian_filter(x, 15) - 0.06).astype(np.float32)
    if draw.random() < 0.2:  # edge of the scan
        x[:, : draw.randint(1, 40)] = draw.uniform(0, 0.2)
    grey = (x.clip(0, 1) * 255).astype(np.uint8)
    if draw.random() < 0.6:
        buffer = io.BytesIO()
        Image.fromarray(grey).save(buffer, "JPEG", quality=draw.randint(15, 90))
        grey = np.asarray(Image.open(buffer))
    return grey


def kinds(sources: Path) -> dict[str, tuple[float, Draw]]:
    """Each kind of page with its share and what makes one."""
    words, index = texts(sources / "udhr"), sources / "fonts.json"
    if not index.exists():
        index.write_text(json.dumps(fonts_of(sources / "fonts", words), indent=1))
    fonts: dict[str, dict[str, list[str]]] = json.loads(index.read_text())
    made: dict[str, tuple[float, Draw]] = {}
    for number, script in enumerate(LANGUAGES):
        share = SHARES.get(script, 2.2 if number < ISSUE else 0.9)
        made[script] = (share, partial(typeset, script=script, words=words[script], families=fonts[script]))
    for kind in ("gothic", "hand", "typed"):
        made[kind] = (SHARES[kind], partial(typeset, script=kind, words=words["latin"], families=fonts[kind]))
    documents: dict[str, list[Path]] = defaultdict(list)
    for manifest in sorted((sources / "lines").glob("*/manifest.tsv")):
        for row in manifest.read_text(encoding="utf-8").splitlines()[1:]:
            split, file, document = row.split("\t")[:3]
            if split == "train":
                documents[document].append(manifest.parent / file)
    made["lines"] = (SHARES["lines"], partial(scanned_lines, folders=list(documents.values())))
    for folder in sorted((sources / "scans").iterdir()):
        share = SHARES["scans"] if folder.name == "latin" else 1.5
        made[f"scans {folder.name}"] = (share, partial(scan, files=sorted(folder.iterdir())))
    made["strange"] = (SHARES["strange"], partial(strange, families=fonts["strange"]))
    made["picture"] = (SHARES["picture"], partial(picture, files=sorted((sources / "pictures").iterdir())))
    made["music"] = (SHARES["music"], partial(music, file=next((sources / "fonts").rglob("NotoMusic-Regular.ttf"))))
    made["drawing"], made["noise"] = (SHARES["drawing"], drawing), (SHARES["noise"], noise)
    return {kind: made[kind] for kind in made if kind not in HELD_OUT}


def write_tiles(file: Path, seed: int, made: dict[str, tuple[float, Draw]], pages: int = PAGES) -> None:
    """The tiles of so many pages, drawn by `seed`."""
    draw, names = random.Random(seed), sorted(made)
    tiles, known, scripts = [], [], []
    for _ in range(pages):
        kind = draw.choices(names, [made[name][0] for name in names])[0]
        try:
            page, has_up = made[kind][1](draw)
            grey = degrade(page, draw, kind == "lines" or kind.startswith("scans"))
        except OSError as error:  # a font that FreeType refuses, a broken scan
            print(f"{kind}: {error}", flush=True)
            continue
        found = tiles_of(grey, LONG)
        tiles.append((found[:, 0] * 31).round().to(torch.int8).numpy())
        known += [has_up] * len(found)
        scripts += [kind] * len(found)
    part = file.with_suffix(".part.npz")
    np.savez(part, tiles=np.concatenate(tiles), known=np.array(known), script=np.array(scripts))
    part.rename(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--files", type=int, default=300, help="of 20 pages each (default 300)")
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first file (default 0); those that are there stay"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    made, folder = kinds(args.sources), args.sources / "tiles"
    folder.mkdir(exist_ok=True)
    for number in range(args.first, args.first + args.files):
        file = folder / f"{number:04}.npz"
        if not file.exists():
            write_tiles(file, number, made)
            print(file, flush=True)


if __name__ == "__main__":
    main()
