"""Shakespeare: next-character prediction, one natural client per speaking role.

The Fed-SMP paper takes this task from S. Reddi et al., "Adaptive federated optimization", ICLR
2021, arXiv:2003.00295, and this module follows their published preprocessing, the one used
with TensorFlow Federated's 715 roles: each speech becomes begin + characters + end, is cut into
pieces of 81 tokens, the last one padded, and a piece gives 80 inputs and the 80 characters that
follow them (*every* next character is predicted; a piece never spans two speeches). LEAF
(S. Caldas et al., arXiv:1812.01097) instead predicts one character from each window of the 80
before it, which makes an example of every character; that is not done here. Pieces without any
character to predict (only padding) are left out.

As in H. B. McMahan et al., arXiv:1602.05629, a client is a speaking role of one play with at least
two lines, its first 80% are for training and the others, at least one, for testing. A "line" is
one speech, the unit (snippet) of TensorFlow Federated's set. With another edition of the plays
the number of roles differs from 715, so accuracies are not comparable one to one.
"""

import gzip
import json
import zlib
from collections import defaultdict
from pathlib import Path

import numpy as np

from fedpriv.core.complaints import require
from fedpriv.data.datasets.dataset import CorruptDataError, Dataset, MissingDataError

LENGTH = 80  # characters of input
# The 86 characters of TensorFlow Federated's text-generation tutorial, in its order: ids 1 to 86.
CHARACTERS = (
    "dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#'/37;?bfjnrvzBFJNRVZ\"&*.26:\naeimquyAEIMQUY]!%)-159\r"
)
PAD = 0
UNKNOWN, BEGIN, END = (len(CHARACTERS) + i for i in (1, 2, 3))
VOCABULARY = len(CHARACTERS) + 4  # 90

_FILES = ("plays.jsonl.gz", "plays.jsonl")
_FIELDS = ("play", "speaker", "text")


def load_shakespeare(
    data_dir: Path, plays: slice = slice(None), roles: int | None = None
) -> Dataset:
    """All roles with at least two speeches, of all plays or of some.

    Reads `plays.jsonl.gz` or `plays.jsonl` from `data_dir/shakespeare`, else `data_dir`, else
    `data_dir/../shakespeare`: one JSON object per line with play, act, scene, speaker and text (act
    and scene are not used), in the order of the plays.

    Args:
        plays: which of them, in the file's order; `slice(5)` takes the first five.
        roles: only so many of these, those with the most training examples.

    Returns:
        Examples {"text": u8[N, 80] input ids, "label": i32[N, 80] the ids that follow, "mask":
        bool[N, 80] false at padding, which must not count in a loss or an accuracy}. Ids: 0
        padding, 1..86 `CHARACTERS`, 87 unknown, 88 begin, 89 end. `keys` numbers the roles 0, 1,
        ... in order of appearance; every one has training and test examples. The test set is that
        of all roles together.

    Raises:
        MissingDataError: no such file.
        CorruptDataError: a line cannot be read, or no role has two speeches.
        ValueError: `plays` takes none, or they have fewer than so many `roles`.
    """
    path = _find(data_dir)
    spoken = _roles(path)
    names = list(dict.fromkeys(play for play, _ in spoken))
    chosen = set(names[plays])
    if names and not chosen:
        raise ValueError(f"plays: {plays} takes none of the {len(names)} in {path}; take others")
    parts = [_split(own) for (play, _), own in spoken.items() if play in chosen and len(own) >= 2]
    if not parts:
        raise CorruptDataError(f"{path} has no role with two speeches; prepare it anew")
    enough = roles is None or 0 < roles <= len(parts)
    require(
        enough,
        "roles",
        roles,
        f"these plays have {len(parts)} with two speeches; give 1 to {len(parts)}",
    )
    train = [_pieces(first) for first, _ in parts]
    test = [_pieces(last) for _, last in parts]
    if roles is not None:
        most = np.sort(np.argsort([-len(pieces) for pieces in train], kind="stable")[:roles])
        train, test = [train[i] for i in most], [test[i] for i in most]
    keys = np.repeat(np.arange(len(train), dtype=np.int32), [len(pieces) for pieces in train])
    return Dataset("shakespeare", _examples(train), _examples(test), VOCABULARY, keys)


def _find(data_dir: Path) -> Path:
    folders = [data_dir / "shakespeare", data_dir, data_dir.parent / "shakespeare"]
    for folder in folders:
        for name in _FILES:
            if (folder / name).is_file():
                return folder / name
    raise MissingDataError(
        f"dataset shakespeare: no {' or '.join(_FILES)} in {', '.join(map(str, folders))}; write "
        "one JSON object per line with play, act, scene, speaker and text, in order of the plays"
    )


def _roles(path: Path) -> dict[tuple[str, str], list[str]]:
    """The speeches of every (play, speaker), in order."""
    roles = defaultdict(list)
    open_file = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        with open_file(path, "rt", encoding="utf-8") as file:
            for line in file:
                number += 1
                play, speaker, text = (json.loads(line)[field] for field in _FIELDS)
                roles[play, speaker].append(text)
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise CorruptDataError(
            f"{path} cannot be read at or after line {number} "
            f"({type(error).__name__}: {error}); prepare it anew"
        ) from error
    return roles


def _split(speeches: list[str]) -> tuple[list[str], list[str]]:
    """The first 80% rounded down, and the others; at least one each of two or more."""
    count = len(speeches) * 4 // 5
    return speeches[:count], speeches[count:]


def _pieces(speeches: list[str]) -> np.ndarray:
    """Token ids, u8[pieces, 81]."""
    return np.concatenate([_cut(_encode(speech)) for speech in speeches])


def _encode(speech: str) -> np.ndarray:
    """begin + ids + end, u8[characters + 2]."""
    codes = np.frombuffer(speech.encode("utf-32-le"), "<u4")
    ids = np.where(codes < len(_TABLE), _TABLE[np.minimum(codes, len(_TABLE) - 1)], UNKNOWN)
    return np.concatenate([[BEGIN], ids, [END]]).astype(np.uint8)


def _cut(tokens: np.ndarray) -> np.ndarray:
    """Pieces of 81 tokens, those without a target left out: u8[pieces, 81]."""
    padded = np.pad(tokens, (0, -len(tokens) % (LENGTH + 1)), constant_values=PAD)
    pieces = padded.reshape(-1, LENGTH + 1)
    return pieces[pieces[:, 1] != PAD]


def _examples(pieces: list[np.ndarray]) -> dict[str, np.ndarray]:
    tokens = np.concatenate(pieces)
    label = tokens[:, 1:]
    return {"text": tokens[:, :-1].copy(), "label": label.astype(np.int32), "mask": label != PAD}


def _table() -> np.ndarray:
    """From ASCII code to id, u8[128]."""
    table = np.full(128, UNKNOWN, np.uint8)
    table[[ord(c) for c in CHARACTERS]] = np.arange(1, len(CHARACTERS) + 1)
    return table


_TABLE = _table()
