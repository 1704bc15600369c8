"""What each file's tests cost, and what JAX did for them: `pytest --costs`.

Seconds are of processors, those of started processes included: other work on the machine hardly changes them.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import pytest

STAGES = {
    "/jax/core/compile/jaxpr_trace_duration": "tracing",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowering",
    "/jax/core/compile/backend_compile_duration": "compiling",
}
COLUMNS = ("tests", "seconds", "collecting", *STAGES.values(), "programs", "compiled")


class Costs:
    """A plugin that counts in each worker, and prints a table of all of them: a line for each file, costly ones first.

    `programs` are those that JAX asked for, `compiled` those that no cache had. A stage's seconds are by the clock, and
    leave out what other stages spent within it.
    """

    def __init__(self) -> None:
        self.files: dict[str, dict[str, float]] = {}
        self.file = ""
        self.ended: list[tuple[float, float]] = []  # start and seconds of stages, outermost ones
        jax.monitoring.register_event_duration_secs_listener(self._stage)
        jax.monitoring.register_event_listener(self._event)

    def _add(self, column: str, amount: float) -> None:
        self.files.setdefault(self.file, dict.fromkeys(COLUMNS, 0.0))[column] += amount

    def _stage(self, event: str, seconds: float, **_: Any) -> None:
        if event in STAGES:
            start, within = time.time() - seconds, 0.0
            while self.ended and self.ended[-1][0] >= start:
                within += self.ended.pop()[1]
            self.ended.append((start, seconds))
            self._add(STAGES[event], seconds - within)
            compiled = STAGES[event] == "compiling"
            self._add("programs", compiled)
            self._add("compiled", compiled)

    def _event(self, event: str, **_: Any) -> None:
        self._add("compiled", -(event == "/jax/compilation_cache/cache_hits"))

    @contextmanager
    def _spent(self, nodeid: str, column: str) -> Iterator[None]:
        self.file, before = nodeid.partition("::")[0], sum(os.times()[:4])
        yield
        self._add(column, sum(os.times()[:4]) - before)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Any:
        with self._spent(collector.nodeid, "collecting"):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        with self._spent(item.nodeid, "seconds"):
            self._add("tests", 1)
            return (yield)

    @pytest.hookimpl
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["costs"] = self.files

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        for self.file, costs in node.workeroutput.get("costs", {}).items():
            for column, amount in costs.items():
                self._add(column, amount)

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        files = [each for each in self.files.items() if each[0].endswith(".py")]
        found = sorted(files, key=lambda each: -each[1]["seconds"])
        terminalreporter.section("costs of files")
        terminalreporter.write_line("".join(f"{column:>11}" for column in COLUMNS))
        total = {column: sum(costs[column] for _, costs in found) for column in COLUMNS}
        for file, costs in [("all", total), *found]:
            cells = "".join(f"{costs[column]:11.1f}" for column in COLUMNS)
            terminalreporter.write_line(f"{cells}  {file}")
