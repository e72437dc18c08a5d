"""How good it is: arrays in, figures out."""
