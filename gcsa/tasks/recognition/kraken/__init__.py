"""What kraken needs to read with our recognisers (`plugin`), to train them (`training`), and the file between the two (`file`)."""
