"""Studies: a report on a data set about ranking, honesty of p(like), the knob, and other recommenders (peers)."""
