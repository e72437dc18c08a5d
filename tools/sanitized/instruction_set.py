"""A plugin of pytest: the kernels of the instruction set CONSIDERATE_SET, where a test does not choose its own."""

import os

from considerate.kernels import compiled

compiled.use_instruction_set(os.environ["CONSIDERATE_SET"])
