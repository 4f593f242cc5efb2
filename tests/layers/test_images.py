"""Sizes of images: patches and tokens of known models, and what holds for every size."""

import pytest

from flopcast.errors import SpecError
from flopcast.files.validate import build
from flopcast.files.yaml_text import Document
from flopcast.layers.images import Image, Patching
from flopcast.spec.batch import Batch

QWEN = Patching(patch=14, merge=2)
LLAVA = Patching(patch=14, side=336, class_token=True)
LLAMA = Patching(patch=14, merge=2, side=336, tiles=16, class_token=True)
SIZES = ((1024, 1024), (640, 480), (100, 2000), (336, 336), (3000, 4000), (28, 28))


def image(width, height, count=1):
    return (Image(width=width, height=height, count=count),)


def test_tokens_of_known_models():
    assert QWEN.tokens(image(1024, 1024)) == 37 * 37
    assert QWEN.tokens(image(640, 480)) == 23 * 17
    assert LLAVA.tokens(image(640, 480)) == 576
    assert LLAVA.patches(image(640, 480)) == 577
    assert LLAMA.tokens(image(336, 336)) == 144
    assert LLAMA.tokens(image(672, 672)) == (4 + 1) * 144  # four tiles and the whole


def test_sizes_are_those_of_the_image_processors_of_transformers():
    """Rows and columns of tokens of Pixtral and Mistral Small 3.1, and tiles of InternVL."""
    pixtral = Patching(patch=16, longest_pixels=1024)
    mistral = Patching(patch=14, merge=2, longest_pixels=1540)
    internvl = Patching(patch=14, merge=2, side=448, tiles=12, tile_grid="ratio")
    for size, own, merged, tiles in (
        ((336, 336), (21, 21), (12, 12), 1),
        ((1024, 768), (48, 64), (28, 37), 12),
        ((1920, 1080), (36, 64), (31, 55), 8),
        ((300, 2400), (64, 8), (55, 7), 8),
        ((17, 900), (57, 2), (33, 1), 12),
        ((897, 897), (57, 57), (33, 33), 4),
        ((1600, 1601), (64, 64), (55, 55), 9),
    ):
        assert pixtral.tokens(image(*size)) == own[0] * own[1], size
        assert mistral.tokens(image(*size)) == merged[0] * merged[1], size
        assert internvl.tokens(image(*size)) == (tiles + (tiles > 1)) * 256, size


def test_images_of_one_sequence_add_up():
    for patching in (QWEN, LLAVA, LLAMA):
        for size in SIZES:
            assert patching.tokens(image(*size, count=3)) == 3 * patching.tokens(image(*size))
            both = image(*size) + image(640, 480)
            assert patching.patches(both) == patching.patches(image(*size)) + patching.patches(
                image(640, 480)
            )


def test_an_image_that_keeps_its_size_stays_within_the_limits():
    small = Patching(patch=14, merge=2, least_pixels=200_000, most_pixels=300_000)
    for width, height in SIZES:
        pixels = small.tokens(image(width, height)) * 28**2

        assert 200_000 <= pixels <= 300_000


def test_windows_divide_an_image_without_loss():
    """Patches attend to at most a window, and to the whole image if it is not larger than one."""
    for width, height in SIZES:
        patches = QWEN.patches(image(width, height))
        mean = QWEN.attended(image(width, height), window_pixels=112)

        assert mean <= min(64, patches) + 1e-9
        assert QWEN.attended(image(width, height), None) == pytest.approx(patches)


def test_a_text_of_images_is_read_and_written_back():
    batch = Batch(seq=4096, images="2x1024x768 + 336x336")

    assert [(each.count, each.width, each.height) for each in batch.images] == [
        (2, 1024, 768),
        (1, 336, 336),
    ]
    assert "with images 2x1024x768+336x336" in batch.text()
    with pytest.raises(SpecError, match="joined by"):
        build(Batch, Document("job.yaml", {}, {}), {"seq": 4096, "images": "1024"})


def test_sizes_and_numbers_of_images_begin_with_one_and_the_fix_is_a_text_of_images():
    fixes = {"0x1024x1024": "1x1024x1024", "2x9x9+1x0x10": "2x9x9+1x1x10", "1x1x100000": "1x1x65536"}
    for text, right in fixes.items():
        with pytest.raises(SpecError) as caught:
            build(Batch, Document("job.yaml", {}, {}), {"seq": 4096, "images": text})

        (problem,) = caught.value.problems
        assert problem.fix == f"set images to {right}", text
