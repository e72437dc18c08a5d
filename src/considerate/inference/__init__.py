"""Stochastic variational Bayes over random graphs: Algorithm 1, one function per equation."""
