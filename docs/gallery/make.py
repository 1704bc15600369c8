"""python docs/gallery/make.py [NAME...]: runs the programs of the gallery, or those named; each saves its picture."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = sorted(path.stem for path in HERE.glob("*.py") if path.stem != "make")


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in PROGRAMS]
    if unknown:
        print(f"{unknown[0]}: no such program; there are {', '.join(PROGRAMS)}", file=sys.stderr)
        return 2
    path = os.pathsep.join([str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])
    for name in names or PROGRAMS:
        print(f"\n{name}", flush=True)
        before = os.times()
        done = subprocess.run(  # in this folder, whose `matplotlibrc` says how pictures look
            [sys.executable, f"{name}.py"],
            cwd=HERE,
            env=os.environ | {"PYTHONPATH": path, "MPLBACKEND": "agg"},
            check=False,
        )
        if done.returncode:
            return done.returncode
        spent = [now - then for now, then in zip(os.times(), before, strict=True)]
        print(f"{spent[4]:.0f} s, {spent[2] + spent[3]:.0f} s of them on a core", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
