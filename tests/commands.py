"""The commands whose names `experiments` has functions of: `commands.sweep.main(argv)`.

`from experiments import sweep` gives the function.
"""

import importlib.util
from pathlib import Path

import experiments


def loaded(name):
    path = Path(experiments.__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"command_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


audit, report, reproduce, sweep = map(loaded, ("audit", "report", "reproduce", "sweep"))
