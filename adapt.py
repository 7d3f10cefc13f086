"""Adapt a recogniser to a book: `python adapt.py PAGES --output FOLDER`; --help lists the options."""

from gcsa.cli.adapt import main

if __name__ == "__main__":
    raise SystemExit(main())
