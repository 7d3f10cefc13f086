"""The page of the demo, by Gradio, without anything from the network."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from gcsa._utils.errors import MissingExtraError
from gcsa.cli.demo import rotation
from gcsa.cli.demo.digits import HELD_OUT

ABOUT_PLAIN = (
    "Left: `gcsa_tiny.rotmnist`, trained on rotated digits of MNIST. Right: a plain network of two convolutions, trained when "
    f"this page started, on upright scans of scikit-learn's digits; it names {{share:.1%}} of {HELD_OUT} other upright ones "
    "rightly. It shows how rotation changes the answers of a plain network, and is no fair rival: it saw no rotated digit. Ours "
    "saw no scan of this kind: it named four of eight sevens rightly, and the example is one of the four. Rotations by 90 "
    "degrees do not change our scores; other angles resample the image, and change them a little."
)


def gradio() -> Any:
    """The package. Raises ImportError, naming the extra, where it is not installed."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when it is imported
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        import gradio
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"the demo needs the package {error.name!r}: install gcsa-vit[demo]", "demo.missing"
        ) from error
    return gradio


def theme() -> Any:
    """Fonts of the reader's own machine: Gradio's would come from Google."""
    font = gradio().themes.Font
    return gradio().themes.Default(font=[font("system-ui"), font("sans-serif")], font_mono=[font("monospace")])


def make_page() -> Any:
    """Gradio's Blocks. Trains the plain network, which takes seconds."""
    gr = gradio()
    _, share = rotation.plain()
    with gr.Blocks(title="gcsa", analytics_enabled=False) as page:
        gr.Markdown("# gcsa: rotate the image")
        with gr.Tab("Classify"):
            gr.Markdown(ABOUT_PLAIN.format(share=share))
            shown, ours = gr.Image(label="rotated", type="pil"), gr.Label(label="ours", num_top_classes=3)
            other = gr.Label(label="plain", num_top_classes=3)
            _wire(gr, page, rotation.classify, rotation.example_digit(), 1, [shown, ours, other])
        with gr.Tab("Segment nuclei"):
            gr.Markdown(
                "`gcsa_unet_tiny.nuclei`: at multiples of 90 degrees the borders rotate with the image, pixel for pixel."
            )
            count = gr.Textbox(label="found", elem_id="nuclei")
            _wire(gr, page, rotation.segment, rotation.example("nuclei.png"), 1, [gr.Image(label="borders"), count])
        with gr.Tab("Read a line"):
            gr.Markdown("`gcsa_ocr_tiny.fr17`, for French print of the 17th century, at any multiple of 90 degrees.")
            text, certain = gr.Textbox(label="text", elem_id="text"), gr.Textbox(label="confidence")
            _wire(gr, page, rotation.read, rotation.example("line.png"), 90, [gr.Image(label="rotated"), text, certain])
        gr.Markdown("Examples: scikit-learn's digits (CC-BY 4.0), BBBC038 (CC0), e-ditiones' OCR17 (CC-BY 4.0).")
    return page


def _wire(gr: Any, page: Any, show: Callable[..., Any], first: Any, step: int, outputs: list[Any]) -> None:
    """An image and a slider, which fill `outputs` with what `show` makes of them, now and when they change."""

    def answer(picture: Any, angle: float) -> Any:
        try:
            return show(picture, angle)
        except ValueError as error:
            raise gr.Error(str(error)) from error

    picture = gr.Image(first, type="pil", label="image", sources=["upload", "clipboard"])
    angle = gr.Slider(0, 360, 0, step=step, label="angle in degrees, counter-clockwise")
    page.load(answer, [picture, angle], outputs, show_progress="hidden")
    for event in (angle.change, picture.change):
        event(answer, [picture, angle], outputs, show_progress="hidden", trigger_mode="always_last")
