"""Fuzzers: inputs from an attacker, and oracles for what must come out. `make fuzz MINUTES=10` runs them all."""
