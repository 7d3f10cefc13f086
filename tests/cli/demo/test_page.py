"""The page of the demo: without Gradio, over HTTP, and in a browser where one is installed."""

import os
import re
import shutil
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from gcsa.cli.demo import main
from gcsa.cli.demo.page import make_page, theme

pytestmark = pytest.mark.filterwarnings("default")  # of Gradio and what it brings along
SCREENSHOT = "GCSA_SCREENSHOT"
"""Names the file in which the picture for the site is kept."""


def test_without_gradio_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    with pytest.raises(SystemExit, match="2"):
        main(["--no-browser"])
    assert capsys.readouterr().err == "error: the demo needs the package 'gradio': install gcsa-vit[demo]\n"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    pytest.importorskip("gradio")
    page = make_page()
    _, local, _ = page.launch(server_name="127.0.0.1", prevent_thread_lock=True, quiet=True, theme=theme())
    yield local
    page.close()


def test_the_page_takes_nothing_from_the_network(address: str) -> None:
    with urllib.request.urlopen(address) as answer:
        page = answer.read().decode()
    loaded = re.findall(r"<(?:script|link|img)\b[^>]*?(?:src|href)=\"(https?://[^\"]+)", page)
    assert [url for url in loaded if not url.startswith(address)] == []
    assert "fonts.googleapis.com/css" not in page


def test_moving_the_slider_in_a_browser(address: str) -> None:
    sync_api = pytest.importorskip("playwright.sync_api")
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    with sync_api.sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        except sync_api.Error as error:
            pytest.skip(f"no Chromium: {str(error).splitlines()[0]}")
        page = browser.new_page(viewport={"width": 1100, "height": 1200})
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        page.get_by_role("tab", name="Read a line").click()
        text = page.locator("#text textarea")
        sync_api.expect(text).not_to_have_value("", timeout=60_000)
        upright = text.input_value()
        certain = page.get_by_label("confidence")
        number = page.get_by_role("spinbutton").locator("visible=true")
        number.fill("90")
        number.press("Enter")
        sync_api.expect(certain).to_have_value(re.compile("rotated by 90 degrees"), timeout=60_000)
        assert text.input_value() == upright
        if name := os.environ.get(SCREENSHOT):
            page.screenshot(path=str(Path(name)))
        assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
        browser.close()
