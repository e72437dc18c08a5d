"""The shell: `considerate fit | recommend | inspect | simulate | demo`. No arithmetic; heavy imports only in commands.

app.py         the program: its commands, its errors as one sentence, its exit codes
options.py     options that several commands share; those of a fit are made from `Parameters`
screen.py      what is printed where
fitting.py     fit
recommending.py, inspecting.py, simulating.py, demonstrating.py, studying.py
"""

from considerate.cli.app import app, main

__all__ = ["app", "main"]
