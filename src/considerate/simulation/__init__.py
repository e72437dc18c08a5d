"""Simulation: degree laws, random graphs, and data drawn from the model."""
