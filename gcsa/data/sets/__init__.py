"""The data sets, one LightningDataModule a file."""
