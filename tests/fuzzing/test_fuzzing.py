"""The sandbox is sealed: what leaks out of it is told, also where the code under test hides it."""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.fuzzing import Leak, as_json, json_mutations, mutations, sealed, xml_mutations

XML = '<?xml version="1.0"?><a width="12"><b id="x">text</b><c points="1,2 3,4"/></a>'
CONFIG = {"name": "a", "sizes": [1, 2, 3], "options": {"group": "c4", "drop": 0.1}}


def test_mutations_are_many_and_the_same_for_a_seed() -> None:
    for mutate, good in ((mutations, XML.encode()), (xml_mutations, XML)):
        first, again, other = (list(mutate(good, 300, seed)) for seed in (1, 1, 2))
        assert first == again != other
        assert len(first) == 300
        assert len(set(first)) > 200
    first, again = ([as_json(value) for value in json_mutations(CONFIG, 300, 1)] for _ in range(2))
    assert first == again
    assert len(set(first)) > 200
    assert sum("pretrained_cfg" in str(json.loads(value)) for value in first) > 3
    assert CONFIG == {"name": "a", "sizes": [1, 2, 3], "options": {"group": "c4", "drop": 0.1}}, "left as it was"
    assert list(mutations(b"", 50, 0)), "nothing can be mutated too"


def leak(kind: str, outside: Path) -> object:
    if kind == "socket":
        return socket.create_connection(("127.0.0.1", 9))
    if kind == "address":
        return socket.getaddrinfo("localhost", 80)
    if kind == "write":
        return (outside / "new").write_text("x")
    if kind == "read":
        return (outside / "secret").read_text()
    if kind == "os.open":
        return os.open(outside / "secret", os.O_RDONLY)
    if kind == "rename":
        return os.replace(outside / "secret", outside / "other")
    if kind == "remove":
        return (outside / "secret").unlink()
    if kind == "program":
        return subprocess.run([sys.executable, "-c", ""])
    if kind == "array":
        return np.ones(1 << 31)
    if kind == "tensor":
        return torch.zeros(1 << 31)
    while kind == "time":
        time.sleep(0.01)
    raise AssertionError(kind)


KINDS = ("socket", "address", "write", "read", "os.open", "rename", "remove", "program", "array", "tensor", "time")


@pytest.mark.parametrize("kind", KINDS)
def test_leaks_are_told(kind: str, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("s")
    (tmp_path / "sandbox").mkdir()
    with pytest.raises(Leak), sealed(tmp_path / "sandbox", seconds=0.5):
        leak(kind, tmp_path / "outside")
    if kind != "time":

        def hidden() -> None:
            try:
                leak(kind, tmp_path / "outside")
            except Exception as error:
                raise ValueError("some file is damaged") from error

        with pytest.raises(Leak), suppress(ValueError), sealed(tmp_path / "sandbox"):
            hidden()
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["secret"]


def test_links_do_not_lead_out(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    (tmp_path / "sandbox").mkdir()
    (tmp_path / "sandbox" / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(Leak, match="secret"), sealed(tmp_path / "sandbox"):
        (tmp_path / "sandbox" / "link").read_text()


def test_reading_and_writing_inside_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "more").write_text("m")
    sandbox = tmp_path / "sandbox"
    sandbox.mkdir()
    with sealed(sandbox, readable=[tmp_path / "more"]):
        import tabnanny  # a module that nobody has imported yet

        (sandbox / "sub").mkdir()
        (sandbox / "sub" / "file").write_text((tmp_path / "more").read_text())
        os.replace(sandbox / "sub" / "file", sandbox / "file")
        torch.zeros(1 << 20)
    assert (sandbox / "file").read_text() == "m"
    assert tabnanny
    with pytest.raises(Leak, match="file"), sealed(sandbox, write=False):
        (sandbox / "file").write_text("x")
    with pytest.raises(ValueError, match="as it is"), sealed(sandbox):
        raise ValueError("as it is")
    (tmp_path / "free").write_text("outside of the sandbox, all is as ever")
