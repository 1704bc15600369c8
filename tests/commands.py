"""The commands whose names `experiments` has functions of: `commands.sweep.main(argv)`.

`from fedpriv.experiments.commands import sweep` gives the function.
"""

import importlib.util
import sys
from pathlib import Path

from fedpriv import experiments


def loaded(name):
    path = Path(experiments.__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"command_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


NAMES = ("audit", "privacy", "report", "reproduce", "run", "sweep")
audit, privacy, report, reproduce, run, sweep = map(loaded, NAMES)
