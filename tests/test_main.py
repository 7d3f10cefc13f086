"""The command `gcsa`: its commands, what is none, and that arguments are read without torch."""

import subprocess
import sys
from pathlib import Path

import pytest

from gcsa.__main__ import COMMANDS, main

REGISTERED = (
    "assert {'gcsa_tiny', 'gcsa_small'} <= set(timm.list_models('gcsa*')); assert timm.create_model('gcsa_tiny')"
)


def start(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1])


def test_without_a_command_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == main(["--help"]) == 0
    listed = capsys.readouterr().out
    assert all(f"  {name} " in listed for name in COMMANDS)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("gcsa 0.")


@pytest.mark.parametrize(("name", "words"), [("segmen", "did you mean segment?"), ("x\x1b", "choose one of train, ")])
def test_a_command_that_is_none(name: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), words in err, "\x1b" in err) == ("", 1, True, False)


@pytest.mark.parametrize(
    "code",
    [
        "import gcsa, sys; assert 'torch' not in sys.modules; import timm",
        "import gcsa; from importlib.util import find_spec; assert find_spec('timm'); from timm.models import resnet; import timm",
        "import timm, gcsa",
        "from gcsa.models.create import create_model; import timm",
    ],
)
def test_timm_knows_the_models(code: str) -> None:
    """Whichever is imported first, and although somebody looked whether timm is there."""
    done = start(f"{code}\n{REGISTERED}")
    assert done.returncode == 0, done.stderr
