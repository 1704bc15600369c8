"""The commands, in a checkout: python -m experiments.NAME is `fedpriv NAME`. Also speed beside rivals, and results."""

import sys

if sys.argv[:1] == ["-m"] and any(word.startswith("experiments") for word in sys.orig_argv):
    # Python is starting one of the commands.
    from fedpriv.experiments import commands

    commands.begin()
