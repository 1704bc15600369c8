"""The commands: python -m experiments.NAME."""

import sys

if sys.argv[:1] == ["-m"]:  # Python is starting one of them
    from experiments.base import signals

    signals.install()
