"""Files of images as NumPy arrays, for `Federation.from_arrays`: listed, or in folders that say class and client."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.core.arguments import Count, check_path, checked
from fedpriv.core.complaints import require
from fedpriv.core.optional_imports import of_package
from fedpriv.data.datasets.dataset import CorruptDataError, MissingDataError
from fedpriv.data.datasets.found_files import files_in

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")


def from_image_folder(
    path: str | os.PathLike[str],
    levels: Sequence[str] = ("label",),
    *,
    classes: Sequence[str] | None = None,
    image_size: tuple[Count, Count] | None = None,
) -> dict[str, np.ndarray]:
    """Images in folders: `image`, as from `read_images`, and a leaf [N] for each level of folders.

    Files are sorted by path. Hidden files are left out, and so are those whose names do not end in one of `SUFFIXES`.

    Args:
        path: the outermost folder.
        levels: what the folders' names mean, from the outermost: `("label",)` for CLASS/FILE, `("client", "label")` for
            CLIENT/CLASS/FILE.
        classes: folder names of the level `label`, which becomes their numbers, i32[N]; by default all that exist,
            sorted. Give all parts of a data set the same, as a part may lack a class.
        image_size: as `read_images`.

    Returns:
        `image`, `label` as numbers, and other levels as folder names.

    Raises:
        ValueError: no such folder, or no images in it; an image in more or fewer folders than levels; a folder without
            images, or that is not a class; as `read_images`.
    """
    check_path("path", path, "give the path of a folder")
    _check_names("levels", levels, "give names of folders' levels, such as ('client', 'label')")
    require("image" not in levels, "levels", levels, "call none of them 'image'")
    numbered = classes is None or "label" in levels
    require(numbered, "levels", levels, "call one of them 'label', or leave classes out")
    root = Path(path).expanduser()
    files = files_in(root, SUFFIXES)
    if not files:
        raise ValueError(f"path: no images in a folder {root}; give the one that holds them")
    folders = _folders(root, files, levels)
    names = {level: [own[i] for own in folders] for i, level in enumerate(levels)}
    columns = {level: np.array(own) for level, own in names.items()}
    if "label" in names:
        columns["label"] = _numbered(names["label"], classes)
    return {"image": read_images(files, image_size), **columns}


def read_images(
    paths: Iterable[str | os.PathLike[str]], image_size: tuple[Count, Count] | None = None
) -> np.ndarray:
    """Reads files of PNG, JPEG, or another format of Pillow: u8[N, height, width, channels].

    There is one channel if all images are gray, else red, green and blue. Transparency is lost. An image is as its EXIF
    orientation says it is seen, or as it is stored if its EXIF is damaged.

    Args:
        paths: paths of the files, such as a column of a table.
        image_size: (height, width) to which they are resized; needed if they differ in size.

    Raises:
        ValueError: no paths; an image of another size than the first, or with more than 8 bits per channel.
        MissingDataError: no such file.
        CorruptDataError: a file that cannot be read.
    """
    single = isinstance(paths, str | os.PathLike) or not isinstance(paths, Iterable)
    require(not single, "paths", paths, "give a list of files")
    image_size = checked("image_size", image_size, tuple[Count, Count] | None)
    files = list(paths)
    require(len(files) > 0, "paths", files, "give at least one file")
    for i, file in enumerate(files):
        check_path(f"paths[{i}]", file, "give the path of a file")
    images = [_read(Path(file), image_size) for file in files]
    height, width, _ = images[0].shape
    for file, image in zip(files, images, strict=True):
        if image.shape[:2] != (height, width):
            raise ValueError(
                f"{file}: {image.shape[0]} x {image.shape[1]} pixels, but {files[0]} has {height} x {width}; give a "
                "size, such as image_size=(64, 64)"
            )
    channels = max(image.shape[-1] for image in images)
    return np.stack([np.broadcast_to(image, (height, width, channels)) for image in images])


def stored_modes(picture: Any) -> list[str]:
    """Of Pillow, the mode in which it is held, and those of its file, such as "RGB;16B", until it is loaded."""
    return [picture.mode, *(str(tile[3]) for tile in getattr(picture, "tile", []))]


def upright(picture: Any) -> Any:
    """A picture of Pillow as its EXIF orientation says it is seen: a turned camera stores it lying on a side.

    One whose EXIF cannot be read is as it is stored.
    """
    with of_package("pillow"):
        from PIL import ExifTags, ImageOps

    turned = picture.copy()  # its pixels are read here, so that damage of these is raised
    try:
        orientation = picture.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # damaged bytes make Pillow's parser raise anything
        return turned
    turned.info.pop("exif", None)  # of which Pillow would write all tags anew, damaged ones, too
    turned.getexif()[ExifTags.Base.Orientation] = orientation
    return ImageOps.exif_transpose(turned)


def mode_of(name: str, stored: list[str]) -> str:
    """Of Pillow, in which a picture is read: "L" for a gray one, else "RGB".

    Raises:
        ValueError: it has more than 8 bits per channel, of which Pillow would cut off the others.
    """
    for mode in stored:
        if mode[0] in "IF" or re.search(";16[BLN]", mode):  # BGR;16 is 16 bits for all three
            raise ValueError(
                f"{name}: its mode is {mode}, more than 8 bits for each channel; convert it to 8 bits"
            )
    return "L" if stored[0] in ("1", "L", "La", "LA") else "RGB"


def _folders(root: Path, files: list[Path], levels: Sequence[str]) -> list[tuple[str, ...]]:
    """The names of the folders that each file lies in, one for each level."""
    folders = [file.relative_to(root).parts[:-1] for file in files]
    for file, own in zip(files, folders, strict=True):
        if len(own) != len(levels):
            raise ValueError(
                f"{file}: it lies in {len(own)} folders, but levels names {len(levels)} ({', '.join(levels)}); give a "
                "name for each, such as ('client', 'label')"
            )
    with_images = {own[0] for own in folders}
    for folder in sorted(root.iterdir()):
        if folder.is_dir() and folder.name not in with_images and folder.name[0] != ".":
            raise ValueError(f"{folder}: no images in it; remove it, or add some")
    return folders


def _check_names(argument: str, names: Sequence[str], remedy: str) -> None:
    several = isinstance(names, Sequence) and not isinstance(names, str)
    good = several and len(names) > 0 and all(isinstance(name, str) and name for name in names)
    require(good and len(set(names)) == len(names), argument, names, remedy)


def _numbered(folders: list[str], classes: Sequence[str] | None) -> np.ndarray:
    """i32[N], the place of each folder's name among the classes."""
    if classes is None:
        classes = sorted(set(folders))
    _check_names("classes", classes, "give the names of the folders, each once")
    number = {name: i for i, name in enumerate(classes)}
    for name in folders:
        if name not in number:
            raise ValueError(
                f"classes: the folder {name!r} is none of {', '.join(classes)}; add it"
            )
    return np.array([number[name] for name in folders], np.int32)


def opened(name: str, file: Path | bytes) -> Any:
    """The picture of a file, or of its bytes, upright.

    Raises:
        ValueError: as `mode_of`.
        CorruptDataError: it cannot be read.
    """
    with of_package("pillow"):
        from PIL import Image

    try:
        with Image.open(io.BytesIO(file) if isinstance(file, bytes) else file) as lazy:
            stored, picture = stored_modes(lazy), upright(lazy)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise CorruptDataError(f"{name}: it cannot be read ({error}); replace it") from None
    mode_of(name, stored)
    return picture


def _read(path: Path, image_size: tuple[int, int] | None) -> np.ndarray:
    """u8[height, width, 1 or 3]."""
    if not path.is_file():
        raise MissingDataError(f"{path}: there is no such file; correct the path")
    picture = opened(str(path), path)
    picture = picture.convert(mode_of(str(path), stored_modes(picture)))
    if image_size is not None:
        picture = picture.resize(image_size[::-1], 2)  # bilinear
    return np.asarray(picture).reshape(picture.height, picture.width, -1)
