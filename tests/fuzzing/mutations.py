"""Variations of good files, the same for a seed."""

import copy
import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree

NASTY_NUMBERS = (0, 1, -1, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 10**30)
NASTY_TEXTS = (
    *("", " ", "nan", "inf", "-inf", "1e400", "-1e308", "1e-320", "0x10", "1_0", "NaN,NaN", "null", "true", "abc", "ten"),
    *map(str, NASTY_NUMBERS),
    *("../secret.png", "../../etc/passwd", "/etc/passwd", "/dev/zero", "/proc/self/environ", "C:\\secret.png", "..\\x.png"),
    *("file:///etc/passwd", "http://127.0.0.1:9/x.png", "\\\\host\\share\\x.png", "~/x.png", "$HOME", ".", "..", "/", "a/../1.png"),
    *("\x00", "1.png\x00.xml", "\ud800", "\u202e", "\ufeff", "e\u0301" * 50, "A" * 70_000, "9" * 5_000, "1,1 " * 5_000, "${oc.env:HOME}", "%s%n"),
)  # fmt: skip
NASTY_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0.5, -0.0, 1e308, float("nan"), float("inf"), -float("inf")),
    *([], {}, [[]], [0] * 1_000, {"a": {"a": {}}}, {"_target_": "os.system", "command": "true"}),
    *NASTY_NUMBERS,
    *NASTY_TEXTS,
)
NASTY_ITEMS: dict[str, Any] = {
    "pretrained": True,
    "pretrained_cfg": {"url": "http://127.0.0.1:9/weights.bin", "file": "/etc/passwd", "hf_hub_id": "a/b"},
    "pretrained_cfg_overlay": {"file": "/etc/passwd"},
    "cache_dir": "/tmp/elsewhere",
    "checkpoint_path": "/etc/passwd",
    "features_only": True,
    "url": "http://127.0.0.1:9/x",
    "file": "/etc/passwd",
    "auto_map": {"AutoModel": "code.Model"},
    "trust_remote_code": True,
    "_target_": "os.system",
    "__class__": "os.system",
    "__proto__": {},
    "": "",
}
"""Keys that have been, or could be, taken for instructions."""

Mutation = Callable[[random.Random, bytes], bytes]


def mutations(data: bytes, count: int, seed: int) -> Iterator[bytes]:
    """`count` variations of `data`: flipped bits, cuts, repetitions, splices, and numbers that are hard to bear."""
    chance = random.Random(seed)
    for _ in range(count):
        mutated = data
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            mutated = chance.choice(_MUTATIONS)(chance, mutated)
        yield mutated


def json_mutations(value: Any, count: int, seed: int) -> Iterator[Any]:
    """`count` variations of a JSON value: nasty values and keys, items left out, repeated, exchanged and nested.

    Numbers may be NaN, infinite or of any size, which `json.dumps` writes and `json.loads` reads.
    """
    chance = random.Random(seed)
    for _ in range(count):
        mutated = copy.deepcopy(value)
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            mutated = _json_mutation(chance, mutated)
        yield mutated


def xml_mutations(text: str, count: int, seed: int) -> Iterator[bytes]:
    """`count` variations of an XML file: of its bytes, its values and its elements, and attacks by entities."""
    chance = random.Random(seed)
    kinds = (_xml_values, _xml_values, _xml_elements, _xml_elements, _xml_entities)
    for _ in range(count):
        mutated = text
        for _ in range(chance.choice((1, 1, 2, 3))):
            mutated = chance.choice(kinds)(chance, mutated)
        encoded = mutated.encode("utf-8", "surrogatepass")
        yield chance.choice(_MUTATIONS)(chance, encoded) if chance.random() < 0.25 else encoded


def _slice(chance: random.Random, data: bytes) -> tuple[int, int]:
    start = chance.randrange(len(data) + 1)
    return start, min(len(data), start + int(2 ** chance.uniform(0, 12)))


def _flip(chance: random.Random, data: bytes) -> bytes:
    mutated = bytearray(data)
    for _ in range(chance.choice((1, 2, 8, 64)) if data else 0):
        mutated[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(mutated)


def _cut(chance: random.Random, data: bytes) -> bytes:
    return data[
        : chance.choice((0, 1, 4, 8, chance.randrange(len(data) + 1), max(0, len(data) - chance.randrange(1, 99))))
    ]


def _leave_out(chance: random.Random, data: bytes) -> bytes:
    start, stop = _slice(chance, data)
    return data[:start] + data[stop:]


def _repeat(chance: random.Random, data: bytes) -> bytes:
    start, stop = _slice(chance, data)
    return data[:stop] + data[start:stop] * chance.choice((1, 3, 50)) + data[stop:]


def _splice(chance: random.Random, data: bytes) -> bytes:
    (start, stop), place = _slice(chance, data), chance.randrange(len(data) + 1)
    return data[:place] + data[start:stop] + data[place + stop - start :]


def _blank(chance: random.Random, data: bytes) -> bytes:
    start, stop = _slice(chance, data)
    return data[:start] + chance.choice((b"\x00", b"\xff")) * (stop - start) + data[stop:]


def _insert(chance: random.Random, data: bytes) -> bytes:
    place = chance.randrange(len(data) + 1)
    return data[:place] + chance.randbytes(chance.choice((1, 4, 100))) + data[place:]


def _integer(chance: random.Random, data: bytes) -> bytes:
    """Sizes, counts and offsets of binary headers, more often those near the start."""
    width = chance.choice((1, 2, 4, 8))
    value = (chance.choice(NASTY_NUMBERS) % 256**width).to_bytes(width, chance.choice(("little", "big")))
    place = chance.randrange(1 + min(len(data), chance.choice((64, 512, len(data)))))
    return data[:place] + value + data[place + width :]


def _digits(chance: random.Random, data: bytes) -> bytes:
    """Numbers that are written out."""
    numbers = list(re.finditer(rb"-?\d+", data[:1_000_000]))
    if not numbers:
        return _integer(chance, data)
    number = chance.choice(numbers)
    return data[: number.start()] + str(chance.choice(NASTY_NUMBERS)).encode() + data[number.end() :]


_MUTATIONS: tuple[Mutation, ...] = (
    _flip,
    _cut,
    _leave_out,
    _repeat,
    _splice,
    _blank,
    _insert,
    _integer,
    _integer,
    _digits,
)


def _json_mutation(chance: random.Random, value: Any) -> Any:
    """Changes `value` at one place, which is more often a shallow one."""
    container = value
    while isinstance(container, dict | list) and container:
        key = chance.choice(list(container) if isinstance(container, dict) else range(len(container)))
        if not isinstance(container[key], dict | list) or not container[key] or chance.random() < 0.3:
            break
        container = container[key]
    else:
        return copy.deepcopy(chance.choice(NASTY_VALUES))
    kind = chance.choice(("value", "value", "value", "add", "remove", "rename", "nest", "exchange", "scale", "root"))
    if kind == "root" and chance.random() < 0.3:
        return copy.deepcopy(chance.choice((*NASTY_VALUES, [value], {"model": value})))
    if kind == "remove":
        del container[key]
    elif kind == "nest":
        for _ in range(chance.choice((1, 2, 500))):
            container[key] = chance.choice(([container[key]], {"a": container[key]}))
    elif kind == "exchange":
        other = chance.choice(list(container) if isinstance(container, dict) else range(len(container)))
        container[key], container[other] = container[other], container[key]
    elif kind == "scale" and isinstance(container[key], int | float):
        container[key] = container[key] * chance.choice((-1, 0, 0.5, 2, 1_000, 10**9))
    elif kind == "add" and isinstance(container, dict):
        name = chance.choice(list(NASTY_ITEMS))
        container[name] = copy.deepcopy(NASTY_ITEMS[name])
    elif kind == "rename" and isinstance(container, dict):
        container[chance.choice((str(key).upper(), f"{key} ", f"_{key}", chance.choice(NASTY_TEXTS)))] = container.pop(
            key
        )
    else:
        container[key] = copy.deepcopy(chance.choice(NASTY_VALUES))
    return value


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")


def _xml_values(chance: random.Random, text: str) -> str:
    """Another value for an attribute, a number or a text."""
    places = list(re.finditer(r'(?<==")[^"]*(?=")|-?\d+(?:\.\d+)?|(?<=>)[^<>\s][^<>]*(?=<)', text))
    if not places:
        return text + chance.choice(NASTY_TEXTS)
    place = chance.choice(places)
    value = chance.choice(NASTY_TEXTS)
    return text[: place.start()] + (_escaped(value) if chance.random() < 0.9 else value) + text[place.end() :]


def _xml_elements(chance: random.Random, text: str) -> str:
    """An element repeated, nested, moved, renamed, emptied or left out."""
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError):  # what was changed before
        return text
    parents = [(parent, child) for parent in root.iter() for child in parent]
    if not parents:
        return text
    parent, child = chance.choice(parents)
    kind = chance.choice(("repeat", "nest", "move", "rename", "empty", "leave out", "attribute"))
    if kind == "repeat":
        parent.extend(copy.deepcopy(child) for _ in range(chance.choice((1, 2, 200))))
    elif kind == "nest":
        for _ in range(chance.choice((1, 2, 300))):
            outer = ElementTree.Element(child.tag, child.attrib)
            parent.remove(child)
            outer.append(child)
            parent.append(outer)
            child = outer
    elif kind == "move":
        parent.remove(child)
        chance.choice([element for element in root.iter()]).append(child)
    elif kind == "rename":
        child.tag = chance.choice([element.tag for element in root.iter()])
    elif kind == "empty":
        child.clear()
    elif kind == "leave out":
        parent.remove(child)
    elif child.attrib:
        del child.attrib[chance.choice(sorted(child.attrib))]
    return ElementTree.tostring(root, encoding="unicode")


def _xml_entities(chance: random.Random, text: str) -> str:
    """Entities that grow, that name files and addresses, and other instructions to a parser."""
    secret = chance.choice(("file:///etc/passwd", "/etc/hostname", "http://127.0.0.1:9/x", "../secret.txt"))
    levels = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10))
    start = chance.choice(
        (
            f'<!DOCTYPE x [<!ENTITY l0 "ha">{levels}]>',
            f'<!DOCTYPE x [<!ENTITY l9 SYSTEM "{secret}">]>',
            f'<!DOCTYPE x [<!ENTITY % p SYSTEM "{secret}"> %p;]>',
            f'<!DOCTYPE x SYSTEM "{secret}">',
            f'<?xml-stylesheet href="{secret}"?>',
            f'<!DOCTYPE x [<!ENTITY l9 "{"A" * 50_000}">]>',
            '<?xml version="1.0" encoding="utf-16"?>',
            '<?xml version="1.0" encoding="utf-7"?>',
            '<?xml version="9.0"?>',
        )
    )
    body = re.sub(r"^\s*<\?xml[^>]*\?>", "", text)
    place = body.rfind("</")
    inside = chance.choice(
        ("&l9;", "&l9;" * 20, f'<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="{secret}"/>')
    )
    return start + body[:place] + inside + body[place:]


def as_json(value: Any) -> bytes:
    """`value` as a file of JSON holds it; lone surrogates, which UTF-8 cannot hold, as escapes."""
    return json.dumps(value).encode()
