"""python -m experiments.report RUN [RUN ...] [--output FILE]: what was recorded, as one HTML page, no network.

RUN is a run folder, ended or not, or a folder of such, as experiments.sweep leaves it. The page has curves (mean and
band over the seeds) by round, by uplink and by certified epsilon, a table, the ledger by view, what the configs differ
in, and where the numbers come from. It is written to report.html, in RUN if there is one, else in the current folder.
Exit code 2: something given was wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.command_line import Parser, command
from experiments.files import write_text
from experiments.report.folders import read_all
from experiments.report.page import page


@command
def main(argv: Sequence[str] | None = None) -> int:
    details = (__doc__ or "").partition("\n\n")[2]
    parser = Parser(prog="python -m experiments.report", description=details)
    parser.add_argument(
        "folders", type=Path, nargs="+", metavar="RUN", help="run folder, or a folder of such"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="default: report.html")
    args = parser.parse_args(argv)
    runs, remarks = read_all(args.folders)
    path = args.output or (args.folders[0] if len(args.folders) == 1 else Path()) / "report.html"
    write(path, page(runs, remarks))
    print(path)
    return 0


def write(path: Path, text: str) -> None:
    """The file is there as a whole or not at all.

    Raises:
      ValueError: it cannot be written.
    """
    try:
        write_text(path, text)
    except OSError as error:
        raise ValueError(
            f"--output: cannot write {path} ({error.strerror}); give a file in a folder that can be written"
        ) from None


if __name__ == "__main__":
    sys.exit(main())
