"""A page in the browser that rotates images: scores, nuclei and text beside them, offline with the packaged weights: `gcsa demo`."""

from __future__ import annotations

from collections.abc import Sequence

from gcsa.cli.arguments import count
from gcsa.cli.errors import Parser, user_errors


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns 0. Raises SystemExit: 2 for an error that the user can mend, 1 for any other."""
    parser = Parser(prog="gcsa demo", description="Serves a page that rotates images, to this machine only.")
    parser.add_argument(
        "--port", type=count(65_535), help="port to serve the page on (default: the first free one from 7860)"
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    args = parser.parse_args(argv)
    with user_errors():
        from gcsa.cli.demo.page import gradio, make_page, theme

        gradio()
        make_page().launch(
            server_name="127.0.0.1", server_port=args.port, inbrowser=not args.no_browser, share=False, theme=theme()
        )
    return 0
