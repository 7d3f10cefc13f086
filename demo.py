"""Turn pictures in the browser and see what stays: `python demo.py`; --help lists the options."""

from gcsa.cli.demo.command import main

if __name__ == "__main__":
    raise SystemExit(main())
