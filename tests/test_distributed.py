"""Two processes compute what one does."""

import socket

import numpy as np
import pytest
from several import ended, free_port, slurm, started
from small import assert_close
from trained import numbers, remembering, trained

import fedpriv as fp
from fedpriv.devices.distributed import initialize

pytestmark = pytest.mark.usefixtures("quick_to_compile", "compiled_once")


@pytest.fixture(scope="module")
def alone():
    """What this process finds on one device."""
    return numbers(trained(fp.Strategy())), numbers(remembering(fp.Strategy()))


LAYOUTS = {"two devices": 1, "four devices, named by Slurm": 2}


@pytest.fixture(scope="module", params=LAYOUTS.values(), ids=LAYOUTS.keys())
def found(request, tmp_path_factory):
    """Devices of each process, and what both of them found."""
    folder, port, devices = tmp_path_factory.mktemp("found"), free_port(), request.param
    files = [folder / f"{i}.npz" for i in range(2)]
    named = [[f"127.0.0.1:{port}", 2, i] if devices == 1 else [] for i in range(2)]
    by_slurm = [{} if devices == 1 else slurm(i, 2, port) for i in range(2)]
    arguments = [
        ["-m", "trained", file, devices, *address]
        for file, address in zip(files, named, strict=True)
    ]
    with started(arguments, by_slurm) as processes:
        for process in ended(processes):
            assert process.code == 0, process.err
    return devices, [dict(np.load(file)) for file in files]


@pytest.mark.slow
def test_the_mesh_spans_all_devices_process_by_process(found):
    devices, results = found
    for result in results:
        assert result["count"] == 2
        assert result["devices"] == 2 * devices
        np.testing.assert_array_equal(result["processes"], np.repeat([0, 1], devices))


@pytest.mark.slow
def test_both_processes_get_the_same(found):
    _, (first, second) = found
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


@pytest.mark.slow
def test_results_are_those_of_one_process(found, alone):
    """To the bit with as many devices, of which there are two: sums of two terms have one order."""
    devices, (result, _) = found
    one, _ = alone
    assert_close({name: result[name] for name in one}, one)
    np.testing.assert_array_equal(result["later"], result["state0"] + 1)
    if devices == 1:
        np.testing.assert_array_equal(result["alone"], one["loss"])
        for name, value in numbers(trained(fp.Strategy("map", 2))).items():
            np.testing.assert_array_equal(result[name], value)


@pytest.mark.slow
def test_what_noise_and_samplers_remember_is_that_of_one_process(found, alone):
    """But for the rounding of another program; of records in memory, and of streamed ones on more devices."""
    devices, (result, _) = found
    how = "remembering" if devices == 1 else "remembering streamed"
    _, one = alone
    assert_close({name: result[f"{how} {name}"] for name in one}, one)


@pytest.mark.slow
def test_errors_are_the_same_in_every_process(found):
    devices, results = found
    for result in results:
        too_many = f"as there are {2 * devices} devices of 2 processes"
        assert too_many in str(result["many"])
        if devices == 2:
            assert "devices: 3; give 1, or a multiple of the 2 processes" in str(result["odd"])
        else:
            assert too_many in str(result["odd"])
            assert "became NaN or infinite in round 2 (seed 0)" in str(result["diverged"])
            another = "process 1 has another than process 0; give every process the same"
            assert str(result["shifted"]) == f"initial_state: {another}"
            assert str(result["moved"]) == f"federation: {another}"


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4"},  # salloc, sbatch
        slurm(0, 4, 1) | {"SLURM_STEP_NUM_TASKS": "1"},  # a shell that srun started for a big job
        slurm(0, 1, 1),
    ],
    ids=["no Slurm", "allocation", "interactive step", "one task"],
)
def test_a_process_without_others_stays_alone(environment, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert initialize() == 1


def test_a_port_in_use():
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ValueError, match=rf"cannot listen on port {port} .*choose another"):
            initialize(f"127.0.0.1:{port}", 2, 0)


@pytest.mark.slow
def test_a_process_that_waits_in_vain_says_so():
    code = "import fedpriv as fp; fp.distributed.initialize('127.0.0.1:{}', 2, 1, timeout=1)"
    with started([["-c", code.format(free_port())]]) as processes:
        (result,) = ended(processes)
    assert result.code == 1
    assert result.err.startswith("error: waited 1 s for 2 processes at coordinator 127.0.0.1:")
    assert result.err.count("\n") == 1
