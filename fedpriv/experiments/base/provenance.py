"""What a run's numbers depend on beside its settings: versions, device, random numbers, code, layout of clients."""

from __future__ import annotations

import platform
import subprocess
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import fedpriv
from fedpriv.devices.layout import Strategy
from fedpriv.experiments.base.shipped import CHECKOUT
from fedpriv.proof.stream import STREAMS

PACKAGES = (
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "dp-accounting",
    "numpy",
    "tensorflow-datasets",
)


def environment(strategy: Strategy) -> dict[str, Any]:
    """The environment as JSON; runs in the same one are the same to the bit."""
    return provenance() | {"layout": asdict(strategy)}


def provenance() -> dict[str, Any]:
    """Versions, device, random numbers and revision of the code, as JSON."""
    found = {"versions": versions(), "device": device(), "prng": prng(), "streams": STREAMS}
    return found | {"git_revision": git_revision()}


def versions() -> dict[str, str]:
    """For provenance: versions of Python and of the packages that numbers depend on."""
    found = {"python": platform.python_version(), "fedpriv": fedpriv.__version__}
    return found | {package: version(package) for package in PACKAGES}


def device() -> dict[str, Any]:
    """For provenance: what computes, and how exactly: "default" is TF32 on some accelerators, float32 on CPU."""
    import jax

    first = jax.local_devices()[0]
    counts = {"count": jax.device_count(), "processes": jax.process_count()}
    options: Any = jax.config  # whose names are known when it runs
    precision = options.jax_default_matmul_precision or "default"
    about = {"platform": first.platform, "kind": first.device_kind, "matmul_precision": precision}
    if first.platform == "cpu":  # whose kind is "cpu", whatever it is
        from fedpriv.engine.compilation_cache import instructions

        about["instructions"] = instructions()
    usual = {"enable_x64": False, "threefry_partitionable": True}
    other = {
        name: value for name in usual if (value := getattr(options, f"jax_{name}")) != usual[name]
    }
    return about | counts | other


def prng() -> str:
    """For provenance: JAX's random numbers, "threefry2x32" by default; seeds mean other numbers with another."""
    import jax

    return str(jax.random.key_impl(jax.random.key(0)))


def git_revision() -> str | None:
    """For provenance: the commit of the folder, with "+" where files differ from it; None outside a checkout."""
    if CHECKOUT is None:
        return None
    try:
        run = [
            subprocess.run(["git", *args], cwd=CHECKOUT, capture_output=True, text=True, check=True)
            for args in (["rev-parse", "HEAD"], ["status", "--porcelain", "-uno"])
        ]
    except (OSError, subprocess.CalledProcessError):
        return None
    return run[0].stdout.strip() + ("+" if run[1].stdout.strip() else "")
