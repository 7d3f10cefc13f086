"""Train a model: `python train.py model=gcsa_small data=pcam`; every option is in conf/. `gcsa train` is the same."""

from gcsa.cli.train import main

if __name__ == "__main__":
    main()
