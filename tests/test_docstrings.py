"""Arguments and attributes that docstrings list exist."""

import importlib
import inspect
import pkgutil

from docstring_parser import google

import fedpriv
from fedpriv.experiments.runs.sinks import LIBRARIES


def definitions():
    """Name -> function or class, of every module; of a sink's only where its library is installed."""
    for module in pkgutil.walk_packages(fedpriv.__path__, "fedpriv."):
        try:
            loaded = importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if error.name not in LIBRARIES.values():
                raise
            continue
        for name, value in vars(loaded).items():
            own = getattr(value, "__module__", "") == module.name
            if own and (inspect.isfunction(value) or isinstance(value, type)):
                yield f"{module.name}.{name}", value


def listed_but_missing(value):
    """Names under "Args:" or "Attributes:" that `value` does not have."""
    entries = google.parse(inspect.getdoc(value) or "").params
    listed = {name.strip(" *") for entry in entries for name in entry.arg_name.split(",")}
    made_by = value.__init__ if isinstance(value, type) else value
    there = {*inspect.signature(made_by).parameters, *value.__annotations__, *dir(value)}
    return {x for x in listed - there if f"self.{x}" not in inspect.getsource(value)}


def test_every_name_that_is_listed_exists():
    found = dict(definitions())
    assert len(found) > 300
    missing = {name: listed_but_missing(value) for name, value in found.items()}
    assert {name: names for name, names in missing.items() if names} == {}


def test_a_name_that_does_not_exist_is_found():
    def clip(norm):
        """Clips.

        Args:
          bound: C.
        """

    assert listed_but_missing(clip) == {"bound"}
