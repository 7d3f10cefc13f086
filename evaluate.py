"""Measure a model: `python evaluate.py model=.../best.ckpt data=rotmnist`; every option is in conf/evaluate.yaml."""

from gcsa.cli.evaluate import main

if __name__ == "__main__":
    main()
