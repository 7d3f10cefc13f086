import pytest

from gcsa.tasks.recognition.data.charset import Charset, display_order, normalize
from tests.errors import raises


def test_normalised_text() -> None:
    assert normalize("e\u0301te\u0301\u00a0 a\t b\n") == "\u00e9t\u00e9 a b"
    assert normalize("\ufeff\u202b\u0643\u062a\u0627\u0628\u202c \u2067x\u2069\u200f") == "\u0643\u062a\u0627\u0628 x"
    assert normalize("a\u200bb \u2060\u200b c") == "ab c", "nor does what says where a line may be broken"
    assert normalize("e\u200e\u0301") == "\u00e9", "an invisible mark does not keep a letter from its accent"
    assert normalize("ﬁn \u017fo\u0364") == "ﬁn \u017fo\u0364", "neither ligatures nor the long s are replaced"


def test_classes_are_sorted_code_points_behind_the_blank() -> None:
    charset = Charset("").extended(["ba", "a c", "e\u0301"])
    assert charset.characters == " abc\u00e9"
    assert len(charset) == 6
    assert charset.encode("cab") == [4, 2, 3]
    assert charset.encode("e\u0301") == charset.encode("\u00e9") == [5]
    assert charset.decode([0, 4, 0, 2, 3]) == "cab"
    assert charset == Charset(" abc\u00e9")
    assert charset != Charset(" abc")


def test_arabic_stays_in_logical_order() -> None:
    text = "كتاب ١٢"
    charset = Charset("").extended([text])
    assert charset.decode(charset.encode(text)) == text
    assert charset.characters[charset.encode(text)[0] - 1] == "ك"


def test_unknown_characters() -> None:
    charset = Charset("ab")
    with raises("charset.unknown"):
        charset.encode("ab\u017f✠")
    assert charset.unknown(["a\u017f\u017f", "\u017fb c"]) == {"\u017f": 3, " ": 1, "c": 1}


def test_extension_keeps_the_old_classes() -> None:
    old = Charset("zy")
    new = old.extended(["xyz a", "b"])
    assert new.characters == "zy abx"
    assert new.encode("zy") == old.encode("zy")
    assert old.extended(["yz"]) == old


@pytest.mark.parametrize(
    ("characters", "key"),
    [
        ("aba", "charset.twice"),
        ("a\u212b", "charset.not_normalised"),
        ("a\t", "charset.not_normalised"),
        ("\u200f", "charset.not_normalised"),
    ],
)
def test_impossible_charsets(characters: str, key: str) -> None:
    with raises(key):
        Charset(characters)


@pytest.mark.parametrize(
    "text", ["\u0643\u062a\u0627\u0628", "\u0633\u0646\u0629 1984 (\u0645)", "\u05e9\u05dc\u05d5\u05dd abc"]
)
def test_right_to_left_text_is_displayed_from_the_right(text: str) -> None:
    shown = display_order(text)
    assert shown != text
    assert display_order(shown) == text
    assert shown[-1] == text[0]


def test_brackets_are_as_they_are_printed_and_numbers_stay() -> None:
    assert display_order("\u05d0 (\u05d1") == "\u05d1) \u05d0"
    assert display_order("\u05d0\u05d1 [a]") == "[a] \u05d1\u05d0"
    assert display_order("\u0633\u0646\u0629 1984") == "1984 \u0629\u0646\u0633"
    assert display_order("a (page, 12") == "a (page, 12"


@pytest.mark.parametrize("character", ["\u200c", "\u00ad", "\u0378"])
def test_characters_without_a_direction_stay(character: str) -> None:
    text = f"\u0641\u064a{character} \u0628"
    assert sorted(display_order(text)) == sorted(text)
    assert display_order(display_order(text)) == text


def test_only_known_characters() -> None:
    charset = Charset("abe\u0301 ")
    assert charset.encode("aeX\u0301b", known_only=True) == [1, 3, 4, 2], "not composed behind another letter"
    assert charset.encode("a X b X", known_only=True) == charset.encode("a b"), "one space"
