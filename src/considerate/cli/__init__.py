"""The shell: `considerate fit | recommend | evaluate | inspect | study | simulate | demo`.

app.py             the program: its commands, its errors as one sentence, its exit codes
options.py         options that several commands share; those of a fit are made from `Parameters`
screen.py          what is printed where
fit.py, recommend.py, evaluate.py, inspect.py, study.py, simulate.py, demo.py   the commands
describe.py        data, a fit and a model as plain values
demo_catalogue.py  the made-up catalogue of the demo
text_charts.py     bars and sparklines

Heavy imports happen inside commands, so that `considerate --help` answers at once.
"""

from considerate.cli.app import app, main

__all__ = ["app", "main"]
