"""What one process or several compute in test_distributed.py; as a program, one of the processes.

python trained.py FILE DEVICES [HOST:PORT N I]: DEVICES of the CPU for this process; without the rest, Slurm names the
processes. FILE gets the numbers and what was refused.
"""

import sys

import jax
import numpy as np
from small import regression, sgd, squared, start

import fedpriv as fp
from fedpriv.devices.layout import default

CLIENTS, COHORT = 7, 5


def score(params, example):
    return {"accuracy": 0.0, "loss": squared(params, example), "weight": 1.0}


def streamed(federation: fp.Federation) -> fp.StreamedFederation:
    """The same, on the host."""
    examples, rows, size = jax.tree.map(
        np.asarray, (federation.examples, federation.rows, federation.size)
    )
    clients = [own[:n] for own, n in zip(rows, size, strict=True)]
    return fp.StreamedFederation.from_arrays(examples, clients)


def trained(strategy: fp.Strategy, noise: float = 0.1, shift: float = 0.0) -> fp.History:
    """DP-FedAvg with 5 of 7 clients of unequal size, 2 seeds, 5 rounds, evaluated every 2."""
    algorithm = fp.dp_fed_avg(
        squared,
        sampler=fp.fixed_size(CLIENTS, COHORT),
        optimizer=sgd,
        batches=fp.epochs(2, 2),
        clip_norm=0.5,
        noise_multiplier=noise,
    )
    return run(algorithm, strategy, shift)


def remembering(strategy: fp.Strategy, *, of_host: bool = False) -> fp.History:
    """As `trained`, where the noise and the sampler remember earlier rounds."""
    algorithm = fp.fed_avg(
        squared,
        sampler=fp.random_availability(CLIENTS, 2, 3, 0.7),
        optimizer=sgd,
        batches=fp.epochs(2, 2),
        mechanism=fp.correlated(fp.gaussian(0.5, 0.1), fp.noise_matrices.banded_inverse(5, 3)),
    )
    return run(algorithm, strategy, of_host=of_host)


def run(
    algorithm: fp.Algorithm, strategy: fp.Strategy, shift: float = 0.0, of_host: bool = False
) -> fp.History:
    """Two seeds, 5 rounds, evaluated every 2."""
    federation = regression([4, 1, 3, 2, 4, 3, 1])
    initial = jax.tree.map(lambda leaf: leaf + shift, start())
    return fp.simulate(
        algorithm,
        initial,
        streamed(federation) if of_host else federation,
        federation.examples,
        score=score,
        rounds=5,
        every=2,
        seeds=(0, 1),
        strategy=strategy,
        measure=fp.measures.per_client(score),
    )


def moved(strategy: fp.Strategy) -> None:
    """Every process streams other records."""
    fp.simulate(
        fp.fed_avg(squared, sampler=fp.everyone(2), optimizer=sgd, batches=fp.full_batch()),
        start(),
        streamed(regression([2, 2], seed=jax.process_index())),
        regression([2, 2]).examples,
        score=score,
        rounds=1,
        strategy=strategy,
    )


def numbers(history: fp.History) -> dict[str, np.ndarray]:
    state = jax.tree.leaves(history.state)
    of_clients = history.evaluations[-1].clients["per_client"].metrics["loss"]
    found = {"loss": history.loss, "of clients": of_clients}
    return found | {f"state{i}": np.asarray(leaf) for i, leaf in enumerate(state)}


def refused(error: type[Exception], fn, *args) -> str:
    try:
        fn(*args)
    except error as caught:
        return str(caught)
    return "nothing"


def main(file: str, devices: str, *address: str) -> None:
    fp.distributed.split_cpu(int(devices))
    given = (address[0], int(address[1]), int(address[2])) if address else ()
    count = fp.distributed.initialize(*given)
    strategy = default()
    history = trained(strategy)
    if address:
        others = {"remembering": remembering(strategy)}
    else:
        others = {"remembering streamed": remembering(strategy, of_host=True)}
    found = numbers(history) | {
        **{f"{how} {name}": x for how, of in others.items() for name, x in numbers(of).items()},
        "odd": refused(ValueError, fp.Strategy, "map", 2 * count - 1),
        "many": refused(ValueError, fp.Strategy, "map", 2 * count * int(devices)),
        "later": jax.tree.leaves(history.state.params)[0] + 1,  # the state is this process's own
    }
    if address:  # once is enough
        found |= {
            "diverged": refused(fp.DivergedError, trained, strategy, 1e30),
            "moved": refused(ValueError, moved, strategy),
            "shifted": refused(ValueError, trained, strategy, 0.1, float(jax.process_index())),
            "alone": trained(fp.Strategy()).loss,  # each process by itself
        }
    np.savez(
        file,
        count=count,
        devices=strategy.devices,
        processes=[device.process_index for device in strategy.mesh.devices],
        **found,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
