"""Images: their sizes, and the grids of patches and the tokens that a vision tower makes of them.

Answers: how many patches does a tower process, how many of them attend to each other, and how many tokens
of the sequence do images take?
Elsewhere: the layers of a tower (layers/vision.py), which images a sequence has (spec/batch.py).

A tower works on images of any size (Qwen-VL), on images that are all resized to one square (CLIP, SigLIP),
or on square tiles of an image and a small copy of the whole (Llama 4).
"""

import math
import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from flopcast.strict_model import NotAllowedError, StrictModel

LARGEST = 2**16  # pixels of one side, and images of one size
_WORD = re.compile(r"(?:(\d+)\s*[x*]\s*)?(\d+)\s*x\s*(\d+)", re.IGNORECASE)


class Image(StrictModel):
    """One or several images of the same size in a sequence.

    Attributes
    ----------
    width, height : int
        Size of the image in pixels, before the model resizes it.
    count : int
        Number of images of this size in a sequence.

    Examples
    --------
    >>> Image(width=1024, height=768, count=2).text
    '2x1024x768'
    """

    width: int = Field(ge=1, le=LARGEST)
    height: int = Field(ge=1, le=LARGEST)
    count: int = Field(default=1, ge=1, le=LARGEST)

    @property
    def text(self) -> str:
        """Return the image as a user writes it: width, height, and a number of images above 1."""
        return f"{f'{self.count}x' * (self.count > 1)}{self.width}x{self.height}"


def read_images(given: object) -> object:
    """Return the images of a text such as "2x1024x768 + 336x336". Return any other value unchanged.

    >>> read_images("2x1024x768 + 336x336")
    ({'width': 1024, 'height': 768, 'count': 2}, {'width': 336, 'height': 336, 'count': 1})
    >>> read_images("none")
    ()
    """
    if isinstance(given, str):
        words = [word.strip() for word in re.split(r"[+,]", given)]
        return () if words in ([""], ["none"]) else tuple(_image(word, given) for word in words)
    if isinstance(given, (list, tuple)):
        return tuple(_image(each, each) if isinstance(each, str) else each for each in given)
    return given


def _image(word: str, text: str) -> dict[str, int]:
    """Return the images of one size that a word of a text describes."""
    found = _WORD.fullmatch(word)
    if not found:
        because = "each entry states how many images of one size a sequence has"
        numbers = re.findall(r"\d+", word)
        fix = {"images": "x".join(numbers) if len(numbers) in (2, 3) else "2x1024x768"}
        raise NotAllowedError("COUNTxWIDTHxHEIGHT in pixels, joined by +", because, fix)
    count, width, height = (int(each or 1) for each in found.groups())
    if not all(1 <= each <= LARGEST for each in (count, width, height)):
        because = "each entry states how many images of one size a sequence has"
        inside = "x".join(str(min(max(each, 1), LARGEST)) for each in (count, width, height))
        fix = {"images": text.replace(word, inside)}
        raise NotAllowedError(f"numbers from 1 to {LARGEST} instead of {word!r}", because, fix)
    return {"width": width, "height": height, "count": count}


def _or_none(given: object) -> object:
    """Return no images for null, which removes those that a file states; else as `read_images`."""
    return () if given is None else read_images(given)


Images = Annotated[tuple[Image, ...], BeforeValidator(_or_none)]


def images_text(images: Iterable[Image]) -> str:
    """Return images as a user writes them.

    >>> images_text((Image(width=8, height=6), Image(width=4, height=4, count=3)))
    '8x6+3x4x4'
    """
    return "+".join(image.text for image in images)


class Patching(StrictModel):
    """How a tower turns an image into patches, and patches into tokens.

    Attributes
    ----------
    patch : int
        Side of a square patch in pixels.
    merge : int
        Side, in patches, of the squares of patches that become one token: merge · merge patches become one
        token.
    side : int, optional
        Side, in pixels, of the square to which each image or tile is resized; by default, an image keeps
        its size, rounded to whole tokens.
    tiles : int
        Largest number of tiles of an image. With more than one, an image is resized to a grid of tiles. If
        the grid has several tiles, the tower also processes a small copy of the whole image.
    tile_grid : str
        Which grid of tiles an image is resized to: "fit", the one that shrinks it least or enlarges it
        least (Llama 4); "ratio", the one whose ratio of sides is nearest (InternVL).
    longest_pixels : int, optional
        Longest side of an image that keeps its size (Pixtral): larger images are scaled down to it, and
        sides are rounded up to whole tokens. By default, the area is limited instead.
    least_pixels, most_pixels : int
        Limits of the area of an image, in pixels, if images keep their size. Smaller and larger images are
        scaled to these limits.
    class_token : bool
        Whether the tower processes an additional class token for each image or tile. It does not become a
        token of the sequence.

    Examples
    --------
    Qwen2.5-VL makes 37 · 37 tokens of an image of 1024 · 1024 pixels, LLaVA-1.5 makes 576 tokens of an
    image of any size:

    >>> Patching(patch=14, merge=2).tokens((Image(width=1024, height=1024),))
    1369
    >>> Patching(patch=14, side=336, class_token=True).tokens((Image(width=1024, height=512),))
    576
    """

    patch: int = Field(ge=1)
    merge: int = Field(default=1, ge=1)
    side: int | None = Field(default=None, ge=1)
    tiles: int = Field(default=1, ge=1, le=256)
    tile_grid: Literal["fit", "ratio"] = "fit"
    longest_pixels: int | None = Field(default=None, ge=1)
    least_pixels: int = Field(default=56 * 56, ge=1)
    most_pixels: int = Field(default=28 * 28 * 16384, ge=1)
    class_token: bool = False

    @model_validator(mode="after")
    def _sizes_agree(self) -> "Patching":
        token = self.patch * self.merge
        if self.side is not None and self.side % token:
            raise ValueError(f"side: a multiple of patch · merge ({token} pixels)")
        if self.side is None and self.tiles > 1:
            raise ValueError("tiles: 1, unless side states the size of a tile")
        if self.side is not None and self.longest_pixels is not None:
            raise ValueError("longest_pixels: none, because side states the size of all images")
        if self.least_pixels > self.most_pixels:
            raise ValueError(f"least_pixels: at most most_pixels ({self.most_pixels})")
        return self

    def grids(self, images: Iterable[Image]) -> Iterator[tuple[int, int, int]]:
        """Yield rows and columns of each grid of patches, and the number of such grids."""
        for image in images:
            if self.side is None:
                yield *self._own_size(image), image.count
            else:
                tiles = self._tiles(image)
                each = self.side // self.patch
                yield each, each, image.count * (tiles + (tiles > 1))

    def tokens(self, images: Iterable[Image]) -> int:
        """Return the tokens of a sequence that its images take."""
        return sum(rows * columns * number for rows, columns, number in self.grids(images)) // self.merge**2

    def patches(self, images: Iterable[Image]) -> int:
        """Return the patches of all images of a sequence, with class tokens: tokens of the tower."""
        extra = int(self.class_token)
        return sum((rows * columns + extra) * number for rows, columns, number in self.grids(images))

    def attended(self, images: Iterable[Image], window_pixels: int | None) -> float:
        """Return the mean number of patches to which a patch attends, over all patches.

        Parameters
        ----------
        window_pixels
            Side of the square windows inside which patches attend to each other; None: to the whole image.

        Examples
        --------
        Windows of 8 · 8 patches cut 12 · 8 patches into 64 and 32:

        >>> Patching(patch=14, merge=2).attended((Image(width=112, height=168),), window_pixels=112)
        53.333333333333336
        """
        pairs = total = 0.0
        for rows, columns, number in self.grids(images):
            window = max(rows, columns) if window_pixels is None else window_pixels // self.patch
            down, across = _pieces(rows, window), _pieces(columns, window)
            if window_pixels is None and self.class_token:
                down, across = [rows * columns + 1], [1]
            pairs += number * sum(each**2 for each in down) * sum(each**2 for each in across)
            total += number * sum(down) * sum(across)
        return pairs / total

    def _own_size(self, image: Image) -> tuple[int, int]:
        """Return rows and columns of patches of an image whose sides are rounded to whole tokens.

        References
        ----------
        `smart_resize` of the image processor of Qwen2-VL; `get_resize_output_image_size` of Pixtral's.
        """
        token = self.patch * self.merge
        if self.longest_pixels is not None:
            scale = max(1.0, max(image.height, image.width) / self.longest_pixels)
            sides = (math.floor(side / scale) for side in (image.height, image.width))
            height, width = (max(1, math.ceil(side / token)) * self.merge for side in sides)
            return height, width
        height, width = (max(token, round(side / token) * token) for side in (image.height, image.width))
        area = image.height * image.width
        if height * width > self.most_pixels:
            scale = math.sqrt(area / self.most_pixels)
            height, width = (
                max(token, math.floor(side / scale / token) * token) for side in (image.height, image.width)
            )
        elif height * width < self.least_pixels:
            scale = math.sqrt(self.least_pixels / area)
            height, width = (
                math.ceil(side * scale / token) * token for side in (image.height, image.width)
            )
        return height // self.patch, width // self.patch

    def _tiles(self, image: Image) -> int:
        """Return the tiles of an image.

        Of grids whose ratios of sides are equally near, the larger one is taken, unless its tiles have
        twice the area of the image.

        References
        ----------
        `get_best_fit` of the image processor of Llama 4; `get_optimal_tiled_canvas` of that of InternVL.
        """
        side = self.side or 1
        if self.tile_grid == "ratio":
            nearest, best = math.inf, 1
            area, ratio = image.width * image.height, image.width / image.height
            wide = range(1, self.tiles + 1)
            grids = sorted((n * m, n) for n in wide for m in range(1, self.tiles // n + 1))
            for number, across in grids:
                far = abs(ratio - across / (number // across))
                if far < nearest or (far == nearest and area > 0.5 * side**2 * number):
                    nearest, best = far, number
            return best
        scales: dict[float, int] = {}
        for down in range(1, self.tiles + 1):
            for across in range(1, self.tiles // down + 1):
                scale = min(down * side / image.height, across * side / image.width)
                scales[scale] = min(down * across, scales.get(scale, self.tiles))
        larger = [scale for scale in scales if scale >= 1.0]
        return scales[min(larger) if larger else max(scales)]


def _pieces(length: int, window: int) -> list[int]:
    """Return the lengths of the pieces that windows cut a side into; the last may be shorter."""
    whole, rest = divmod(length, window)
    return [window] * whole + ([rest] if rest else [])
