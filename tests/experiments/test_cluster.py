"""The files of docs/how_to/slurm run as they stand there, with a stand-in for Slurm."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys

import pytest
from several import PATIENCE, ROOT, environment, free_port

import fedpriv as fp
from fedpriv.experiments.config import modules
from fedpriv.experiments.config.options import parse

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiled_once")]

FOLDER = ROOT / "docs" / "how_to" / "slurm"
FILES = {path.name: path.read_text() for path in FOLDER.iterdir() if path.is_file()}
OWN = "train_own.py"
TASKS = """\
#!/bin/bash
while [[ $1 == -* ]]; do shift; done
export SLURM_STEP_NODELIST=127.0.0.1 SLURM_STEP_NUM_TASKS=$SLURM_NTASKS
for ((i = 0; i < SLURM_NTASKS; i++)); do
    SLURM_PROCID=$i SLURM_LOCALID=$i "$@" &
    tasks[i]=$!
done
if [[ -n ${TIME_IS_UP_WITH:-} ]]; then  # this file; Slurm signals the tasks, not the script
    until [[ -e $TIME_IS_UP_WITH ]] || ! kill -0 "${tasks[0]}"; do sleep 0.05; done
    kill -TERM "${tasks[@]}"
fi
for task in "${tasks[@]}"; do wait "$task" || code=$?; done
exit "${code:-0}"
"""
SAID = '#!/bin/bash\nprintf "%s\\n" "$*"\n'
SMALL = ["--clients", "12", "--cohort", "5", "--sampling", "fixed_size", "--capacity", "5"]
SMALL += ["--local.epochs", "1", "--public-examples", "5", "--algorithms", "fed_avg"]
SMALL += ["--every", "1", "--seeds", "1"]


@pytest.fixture
def submit(tmp_path):
    """Runs a script as `sbatch` would, with `srun` for so many tasks; its exit code, output and errors."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)

    def submitted(script, *args, srun=TASKS, tasks=2, **variables):
        programs = {"srun": srun, "python": f'#!/bin/bash\nexec {sys.executable} "$@"\n'}
        for name, text in programs.items():
            (tmp_path / "bin").mkdir(exist_ok=True)
            (tmp_path / "bin" / name).write_text(text)
            (tmp_path / "bin" / name).chmod(0o755)
        own = environment() | {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        own |= {"SLURM_JOB_ID": "7", "SLURM_NTASKS": str(tasks), "SLURM_CPUS_PER_TASK": "1"}
        own |= {"JAX_COORDINATOR_PORT": str(free_port())} | variables
        process = subprocess.Popen(
            ["bash", script, *map(str, args)],
            cwd=tmp_path,
            env=own,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        return process.returncode, out, err

    return submitted


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


def test_the_page_names_all_files():
    page = FOLDER.with_name("devices_and_slurm.md").read_text()
    assert {*re.findall(r"\]\(slurm/(.+?)\)", page)} == FILES.keys()


def test_a_job_begins_or_goes_on(submit, tmp_path):
    asked = ("train.sbatch", "runs/a b", "quickstart", "--rounds", "3")
    started = "python -m fedpriv run quickstart --rounds 3 --output runs/a b\n"
    assert submit(*asked, srun=SAID) == (0, f"--gpu-bind=none {started}", "")
    (tmp_path / "runs" / "a b").mkdir(parents=True)
    (tmp_path / "runs" / "a b" / "config.json").touch()
    resumed = "python -m fedpriv run --resume runs/a b\n"
    assert submit(*asked, srun=SAID) == (0, f"--gpu-bind=none {resumed}", "")


def test_each_task_of_an_array_has_a_point(submit):
    (last,) = map(int, re.findall(r"--array=0-(\d+)", FILES["points.sbatch"]))
    said = []
    for i in range(last + 1):
        task = {"SLURM_ARRAY_TASK_ID": str(i)}
        code, out, _ = submit("points.sbatch", "runs/n", "quickstart", srun=SAID, **task)
        assert code == 0
        assert out.startswith("python -m fedpriv run quickstart --noise-multiplier ")
        assert out.endswith(f" --output runs/n/{i}\n")
        said.append(out)
    settings = parse(modules.load("quickstart"), "quickstart", shlex.split(said[2])[5:])
    assert (settings.noise_multiplier, settings.clip_norm) == (8, 0.3)
    assert len(set(said)) == last + 1
    task = {"SLURM_ARRAY_TASK_ID": str(last + 1)}
    code, out, err = submit("points.sbatch", "runs/n", "quickstart", srun=SAID, **task)
    assert (code, out) == (1, "")
    assert "unbound variable" in err


def test_a_job_in_two_processes_stops_in_time(submit, tmp_path):
    """How it goes on is told above; test_processes.py has two that go on, after one of them was killed."""
    folder = tmp_path / "runs" / "two"
    job = ("train.sbatch", "runs/two", "quickstart", *SMALL, "--rounds", "1000000")
    code, _, err = submit(*job, TIME_IS_UP_WITH="runs/two/metrics.jsonl")
    assert (code, summary(folder)["status"]) == (130, "interrupted"), err
    found = summary(folder)
    assert (found["device"]["count"], found["device"]["processes"]) == (2, 2)
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [*range(1, len(lines) + 1)]


def test_a_script_of_ones_own(submit, tmp_path):
    """In two processes, of which only the first speaks."""
    (tmp_path / "own.sbatch").write_text(f"srun python {OWN} two\n")
    code, out, err = submit("own.sbatch")
    assert code == 0, err
    ((rounds, accuracy),) = re.findall(r"^\[(.*)\] \[(.*)\]$", out, re.MULTILINE)
    assert rounds.split() == ["5", "10", "15", "20"]
    assert all(0 < float(x) < 1 for x in accuracy.split())
    assert fp.models.load_model(tmp_path / "two", "dp_fed_avg").params
