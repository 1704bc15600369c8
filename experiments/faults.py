"""python -m experiments.faults: planted faults, and what fedpriv, jax_privacy and Opacus say to each."""

from experiments.speed.faults import main

if __name__ == "__main__":
    main()
