"""Train a model: `python train.py model=gcsa_small data=pcam`; every option is in conf/."""

from gcsa_commands import train

if __name__ == "__main__":
    train()
