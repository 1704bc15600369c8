"""What people hand in, and what the public functions of fedpriv make of it: a result, or one line that names it."""

import dataclasses
import functools
import inspect
import random
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal, get_args, get_origin

import jax
import jax.numpy as jnp
import numpy as np
import optax
from public_functions import UNIONS, Public, everything
from valid_calls import KNOWN, NOT_RUN, arguments_of, made_of

import fedpriv as fp


class Unshowable:
    """Its repr fails."""

    def __repr__(self):
        raise RuntimeError("no repr")


class Verbose:
    """Its repr has many lines."""

    def __repr__(self):
        return "x\n" * 99


WHOLE = {"0": 0, "-1": -1, "1": 1, "10**400": 10**400, "-10**400": -(10**400), "2**40": 2**40}
WHOLE |= {"np.int64(-3)": np.int64(-3), "np.uint64": np.uint64(2**64 - 1)}
WHOLE |= {"np.int64(1)": np.int64(1), "jnp.int32(1)": jnp.int32(1), "jnp.int32(-1)": jnp.int32(-1)}
REAL = {
    "0.5": 0.5,
    "np.float32(0.5)": np.float32(0.5),
    "jnp.float32(0.5)": jnp.float32(0.5),
    "2.5": 2.5,
    "1.0": 1.0,
    "-0.5": -0.5,
    "1e300": 1e300,
    "nan": np.nan,
    "inf": np.inf,
    "-inf": -np.inf,
    "np.float32(nan)": np.float32("nan"),
    "jnp.inf": jnp.float32(jnp.inf),
    "array(-1.0)": np.array(-1.0),
    "bfloat16(-1)": jnp.bfloat16(-1),
    "Fraction(5, 2)": Fraction(5, 2),
}
NEITHER = {
    "None": None,
    "'3'": "3",
    "''": "",
    "a text": "one\ntwo " * 40,
    "bytes": b"3",
    "complex": 1j,
    "np.complex64": np.complex64(1),
    "Decimal": Decimal("0.5"),
    "list": [1],
    "list of lists": [[1, 2], [3]],
    "tuple": (0.5,),
    "empty": (),
    "dict": {"a": 1},
    "set": {1},
    "array": np.ones(3),
    "array of one": np.ones(1),
    "array of objects": np.array([None, "a"], object),
    "masked": np.ma.masked,
    "key": jax.random.key(0),
    "keys": jax.random.split(jax.random.key(0)),
    "old key": jax.random.PRNGKey(0),
    "timedelta": np.timedelta64(1, "D"),
    "datetime": np.datetime64("2020-01-01"),
    "object": object(),
    "Unshowable": Unshowable(),
    "Verbose": Verbose(),
    "class": int,
    "function": len,
    "range": range(2),
}
FLAGS = {"True": True, "False": False, "np.True_": np.True_, "jnp.bool_": jnp.bool_(True)}
ODD = WHOLE | REAL | NEITHER | FLAGS


def fits(label: str, kind: Any) -> bool:
    """Whether ODD[label] is of the kind: said here once more, by Python's own numbers."""
    value = ODD[label]
    if get_origin(kind) in UNIONS:
        return any(fits(label, one) for one in get_args(kind))
    if kind is type(None):
        return value is None
    if kind is jax.Array:
        return label == "old key"  # the one array of numbers of JAX's that has axes
    if kind is bool:
        return label in FLAGS
    if get_origin(kind) is Literal:
        return False
    if get_origin(kind) is Callable:
        return label == "function"
    if get_origin(kind) is not Annotated:
        return _each_fits(value, get_args(kind))
    known = label in WHOLE or (label in REAL and not kind.__metadata__[0].integer)
    return known and _in_range(value, kind.__metadata__[0])


def _in_range(number: Any, allowed: Any) -> bool:
    number = number if isinstance(number, int) else float(number)
    try:
        inside = allowed.least <= float(number) <= allowed.most
    except OverflowError:
        return False
    return inside and number not in allowed.without


def _each_fits(value: Any, kinds: tuple) -> bool:
    """Of what has several parts, all of them numbers."""
    rows = isinstance(value, np.ndarray) and value.ndim == 1 and value is not np.ma.masked
    keys = isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
    rows = rows or (isinstance(value, jax.Array) and value.ndim == 1 and not keys)
    if not isinstance(value, list | tuple | range) and not rows:
        return False
    if len(kinds) > 1 and kinds[1] is not ... and len(value) != len(kinds):
        return False
    allowed = kinds[0].__metadata__[0]
    each = np.asarray(value).tolist() if rows else value
    numbers = all(isinstance(one, int | float) for one in each)
    whole = all(isinstance(one, int) for one in each)
    return numbers and (whole or not allowed.integer) and all(_in_range(v, allowed) for v in each)


def arguments(name: str) -> dict[str, Any]:
    """Valid ones."""
    given = dict(arguments_of(name))
    return given | ({"rng": np.random.default_rng(0)} if "rng" in given else {})


def called(name: str, /, **changes: Any) -> Any:
    """The result of the function with valid arguments but for the changes."""
    public = everything()[name]
    bound = () if public.owner is None else (made_of(public.owner),)
    return public.function(*bound, **arguments(name) | changes)


def one_line(name: str, error: BaseException) -> bool:
    """Whether it is a complaint of fedpriv's: a ValueError in a line that begins with an argument."""
    known = {*arguments(name), *inspect.signature(everything()[name].function).parameters}
    named = re.match(r"(\w+)[^:=]*[:=]", str(error))
    about = named is not None and named[1] in known
    return isinstance(error, ValueError) and about and "\n" not in str(error)


def is_refused(name: str, parameter: str, value: Any) -> str:
    """What is wrong with the complaint about the value; nothing if nothing is."""
    try:
        called(name, **{parameter: value})
    except Exception as error:
        named = str(error).startswith((f"{parameter}:", f"{parameter}["))
        if one_line(name, error) and named:
            return ""
        return f"{type(error).__name__}: {error}"
    return "taken"


PARTS = (
    fp.Algorithm,
    fp.types.Codec,
    fp.types.Dynamic,
    fp.LocalSteps,
    fp.Mechanism,
    fp.Opening,
    fp.Sampler,
    fp.types.Weighting,
    fp.clipping.Clipping,
    fp.papers.consensus.Coupling,
    fp.papers.consensus.Exchanges,
    fp.papers.consensus.Transmission,
    fp.noise.Noise,
    fp.papers.splitting.Splitting,
    optax.GradientTransformation,
)


def parts_of(public: Public) -> list[str]:
    """The parameters that are functions or bundles of such."""

    def is_part(hint: Any) -> bool:
        if get_origin(hint) in UNIONS:  # a name may stand for a function
            return str not in get_args(hint) and any(map(is_part, get_args(hint)))
        return get_origin(hint) is Callable or (inspect.isclass(hint) and issubclass(hint, PARTS))

    others = {n: h for n, h in public.hints.items() if n not in public.kinds and n != "return"}
    return [name for name, hint in others.items() if is_part(hint)]


def told(value: Any, within: tuple = ()) -> Any:
    """What a result is, down to the numbers that its functions hold."""
    if any(value is one for one in within):
        return "itself"
    within = (*within, value)
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    if isinstance(value, np.ndarray | jax.Array):
        return str(value.dtype), value.shape, np.asarray(value).tobytes()
    if isinstance(value, Mapping):
        return {name: told(one, within) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return type(value).__name__, *(told(one, within) for one in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if field.compare]
        return type(value).__name__, *(told(getattr(value, name, None), within) for name in names)
    if isinstance(value, functools.partial):
        return told((value.func, value.args, value.keywords), within)
    if inspect.isfunction(value):
        cells = [told(cell.cell_contents, within) for cell in value.__closure__ or ()]
        return value.__qualname__, *cells
    plain = value is None or isinstance(value, bool | int | float | str | bytes)
    return type(value).__name__, repr(value) if plain else ""


def outcome(name: str, /, **changes: Any) -> Any:
    """The result as told, or the complaint."""
    try:
        return told(called(name, **changes))
    except ValueError as error:
        return f"refused: {error}"


def as_type(value: Any, of_whole: Any, of_real: Any) -> Any:
    """The numbers in an argument as those of other types."""
    if isinstance(value, tuple | list):
        return type(value)(as_type(one, of_whole, of_real) for one in value)
    if isinstance(value, bool):
        return np.bool_(value) if of_real is np.float32 else jnp.bool_(value)
    if isinstance(value, int):
        return of_whole(value)
    if isinstance(value, float):
        assert float(np.float32(value)) == value, f"{value} is not exact in 32 bits"
        return of_real(value)
    return value


SMALL = [1, 2, 3, 0.5, 0.25, 4.0, np.int64(2), np.float32(0.5), jnp.float32(0.25), jnp.int32(3)]
OTHER_PARTS = [5, "qsgd", None, (), {}, object(), fp.everyone(2), fp.gaussian(1.0, 1.0)]
"""No functions: what they do with their arguments is the user's own."""


def fuzzed(rng: random.Random) -> str:
    """What is wrong with what a random call gives; nothing for a result or one line."""
    known = everything()
    name = rng.choice([n for n in KNOWN if n not in NOT_RUN])
    public = known[name]
    own = arguments(name) if inspect.isfunction(public.function) else public.kinds
    names = sorted({*public.kinds, *own})
    changes = {}
    for parameter in rng.sample(names, rng.randint(1, len(names))):
        pool = list(ODD.values()) + SMALL * 2 if parameter in public.kinds else OTHER_PARTS
        changes[parameter] = rng.choice(pool)
    try:
        called(name, **changes)
    except Exception as error:
        if not one_line(name, error):
            said = str(error).splitlines()[:1]
            return (
                f"{name}({', '.join(changes)}): {type(error).__name__}: {said}; {_labels(changes)}"
            )
    return ""


def _labels(changes: Mapping[str, Any]) -> str:
    return ", ".join(f"{n}={type(v).__name__}" for n, v in changes.items())
