"""Find objects in images: `python segment.py WEIGHTS IMAGES... --output FOLDER`; --help lists the options."""

from gcsa.cli.segment import main

if __name__ == "__main__":
    raise SystemExit(main())
