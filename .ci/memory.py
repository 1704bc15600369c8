"""The memory of a command and of all processes that it starts: their summed PSS, sampled each second.

    python .ci/memory.py pytest
    python .ci/memory.py --below 5 pytest     # ends with 1 where the command held more gigabytes at once

PSS counts what several processes share once. Linux alone tells it.
"""

import argparse
import contextlib
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

GIGABYTE = 1e9


def processes_of(root: int) -> list[Path]:
    """The folders in /proc of a process and of all that descend from it."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            parent = stat.read_text().rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(stat.parent.name))
    found = [root]
    for process in found:
        found += children.get(process, [])
    return [Path("/proc") / str(process) for process in found]


def bytes_of(process: Path) -> int:
    with contextlib.suppress(OSError):
        for line in (process / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    return 0


def resident_bytes(process: Path) -> int:
    with contextlib.suppress(OSError):
        return resource.getpagesize() * int((process / "statm").read_text().split()[1])
    return 0


class Peak:
    """The largest sum so far, when it was, and the largest single process."""

    def __init__(self) -> None:
        self.total, self.single, self.at, self.began = 0, 0, 0.0, time.monotonic()

    def sample(self, root: int) -> None:
        processes = processes_of(root)
        resident = [resident_bytes(process) for process in processes]
        if sum(resident) <= self.total and max(resident) <= self.single:
            return  # never less than PSS, and told at once
        each = [bytes_of(process) for process in processes]
        self.single = max(self.single, *each)
        if sum(each) > self.total:
            self.total, self.at = sum(each), time.monotonic() - self.began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--below", type=float, help="gigabytes")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    peak, ended = Peak(), threading.Event()
    command = subprocess.Popen(args.command)

    def watch() -> None:
        while not ended.wait(1):
            peak.sample(command.pid)

    watching = threading.Thread(target=watch)
    watching.start()
    status = command.wait()
    ended.set()
    watching.join()
    seconds = time.monotonic() - peak.began
    print(
        f"{seconds:.0f} s; at most {peak.total / GIGABYTE:.2f} GB at once, after {peak.at:.0f} s; "
        f"one process at most {peak.single / GIGABYTE:.2f} GB"
    )
    above = args.below is not None and peak.total > args.below * GIGABYTE
    return status or int(above)


if __name__ == "__main__":
    sys.exit(main())
