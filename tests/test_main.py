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


@pytest.mark.parametrize("name", COMMANDS)
def test_help_needs_no_torch(name: str) -> None:
    done = start(
        "import sys; from gcsa.__main__ import main\n"
        "try: main([sys.argv[1], '--help'])\n"
        "finally: assert 'torch' not in sys.modules, 'torch'\n",
        name,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("classify gcsa_pooled_small.pcam nowhere", "there is no nowhere"),
        ("embed gcsa_pooled_small.pcam tests --output x.csv", "--output x.csv must end in .parquet or .h5"),
        ("segment gcsa_unet_tiny.nuclei nowhere.svs --output found", "there is no nowhere.svs"),
        ("segment gcsa_unet_tiny.nuclei README.md --output found --scale 1000", "--scale=1000"),
        ("transcribe gcsa_ocr_tiny.print nowhere", "there is no nowhere"),
        ("orient nowhere", "there is no nowhere"),
        ("adapt pages --output docs", "--output docs is there already"),
        ("audit timm:resnet18 --images nowhere", "there is no nowhere"),
        ("export gcsa_tiny --format tflite --output x", "invalid choice: 'tflite'"),
        ("demo --port 0", "0 is not a whole number from 1 to 65535"),
    ],
)
def test_what_is_wrong_is_said_without_torch(arguments: str, words: str) -> None:
    done = start(
        "import sys; from gcsa.__main__ import main\n"
        "try: sys.exit(main(sys.argv[1:]))\n"
        "finally: assert 'torch' not in sys.modules, 'torch'\n",
        *arguments.split(),
    )
    assert (done.returncode, words in done.stderr, done.stderr.count("\n")) == (2, True, 1), done.stderr
