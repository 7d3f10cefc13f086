"""Classify images: `python classify.py WEIGHTS IMAGES... --output answers.csv`; --help lists the options."""

from gcsa.cli.classify import main

if __name__ == "__main__":
    raise SystemExit(main())
