"""The wheel, installed into a bare environment elsewhere: the commands work there, with the published weights and no net."""

import json
import os
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "tests" / "stored"
NO_HOME = """
import os, pwd, sys
def unknown(number):
    raise KeyError(number)
if sys.version_info >= (3, 11):  # the last matplotlib for 3.10 cannot do without
    pwd.getpwuid = unknown
from gcsa.cli.train import main
sys.exit(main())
"""

pytestmark = pytest.mark.slow  # builds a wheel, installs torch and starts each command: minutes


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("uv") is None:
        pytest.skip("needs uv")
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(["uv", "build", "-q", "--wheel", "--out-dir", str(folder)], cwd=ROOT, check=True)
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module", params=["uv 3.10", "uv 3.12", "pip 3.10", "pip 3.12"])
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Path]:
    """The folder of the commands, in an environment that is removed afterwards."""
    tool, version = request.param.split()
    folder = tmp_path_factory.mktemp("bare")
    found = subprocess.run(["uv", "python", "find", version], cwd=folder, capture_output=True, text=True)
    if found.returncode:
        pytest.skip(f"no Python {version}: uv python install {version}")
    python = folder / "venv" / "bin" / "python"
    if tool == "uv":
        commands = [["uv", "venv", "--python", version, "venv"], ["uv", "pip", "install", "--python", str(python)]]
    else:
        commands = [[found.stdout.strip(), "-m", "venv", "venv"], [str(python), "-m", "pip", "install"]]
    commands[1].append(f"gcsa-vit[ocr] @ {wheel.as_uri()}")
    for command in commands:
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    yield python.parent
    shutil.rmtree(folder)


def start(command: list[str | Path], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Starts a command in an empty folder, far from the checkout and from any network."""
    left_out = ("PYTHONPATH", "HOME", "GCSA_DATA", "VIRTUAL_ENV", "HYDRA_FULL_ERROR", "GCSA_FULL_ERROR")
    nowhere = {name: "http://127.0.0.1:9" for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")}
    clean = {name: value for name, value in os.environ.items() if name not in left_out}
    return subprocess.run(
        list(map(str, command)), cwd=cwd, env=clean | nowhere | environment, capture_output=True, text=True, timeout=900
    )


def test_what_is_in_the_wheel(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    (info,) = {name.split("/")[0] for name in names if ".dist-info/" in name}
    assert {name.split("/")[0] for name in names} == {"gcsa", info}
    for folder in ("conf", "weights"):
        files = {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*") if path.is_file()}
        assert {
            name.removeprefix("gcsa/_shipped/") for name in names if name.startswith(f"gcsa/_shipped/{folder}/")
        } == files


def test_escnn_does_not_come_along(installed: Path, tmp_path: Path) -> None:
    code = "import importlib.util, sys; sys.exit(any(map(importlib.util.find_spec, ('escnn', 'lie_learn', 'py3nj'))))"
    assert start([installed / "python", "-c", code], tmp_path).returncode == 0


def test_train_runs_the_main_job_without_a_home(installed: Path, tmp_path: Path) -> None:
    options = ["trainer.max_epochs=1", "data.limit_train=128", "threads=1"]
    done = start([installed / "python", "-c", NO_HOME, *options], tmp_path)
    assert done.returncode == 0, done.stderr
    (results,) = tmp_path.glob("outputs/*/*/results.json")
    assert json.loads(results.read_text())["data"] == "digits"
    assert (results.parent / "weights" / "model.safetensors").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["outputs"]


def test_train_says_what_the_user_types(installed: Path, tmp_path: Path) -> None:
    done = start([installed / "gcsa", "train", "data=mnist"], tmp_path)
    assert done.returncode == 2
    assert "run `gcsa train data=mnist data.download=true`" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_transcribe_reads_by_published_weights(installed: Path, tmp_path: Path) -> None:
    expected = json.loads((IMAGES / "expected.json").read_text(encoding="utf-8"))
    for names, file in (
        (["gcsa_ocr_tiny.fr17"], "fr17_1.png"),
        (["gcsa_ocr_tiny.print", "gcsa_ocr_tiny.print.la09"], "la09.png"),
    ):
        done = start([installed / "gcsa", "transcribe", *names, IMAGES / file], tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout == expected[names[-1]][file]["text"] + "\n"


def test_segment_names_the_extra_that_it_needs(installed: Path, tmp_path: Path) -> None:
    done = start(
        [installed / "gcsa", "segment", "gcsa_unet_tiny.nuclei", IMAGES / "tissue.png", "--output", "out"], tmp_path
    )
    assert (done.returncode, done.stdout, list(tmp_path.iterdir())) == (2, "", [])
    assert done.stderr.endswith("(No module named 'stardist'): pip install gcsa-vit[dense]\n")


def test_evaluate_and_export_published_weights(installed: Path, tmp_path: Path) -> None:
    done = start(
        [installed / "gcsa", "evaluate", "model=gcsa_tiny.rotmnist", "limit=20", "curve_images=2", "output_dir=out"],
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out" / "evaluation.json").read_text())["trained"]
    done = start([installed / "gcsa", "export", "gcsa_tiny.rotmnist", "--format", "pt2", "--output", "m.pt2"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.pt2", "out"]
