"""Read text lines: `python transcribe.py MODEL [ADAPTER] IMAGES...`; --help lists the options."""

from gcsa.cli.transcribe import main

if __name__ == "__main__":
    raise SystemExit(main())
