"""Evaluation: splits, rankings, metrics, calibration and reports."""
