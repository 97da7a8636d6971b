"""A screenshot as a PNG of at most 256 colours: half its size or less, and no eye sees the difference on flat pages."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np

PIXELS = """async text => {
  const image = await createImageBitmap(await (await fetch("data:image/png;base64," + text)).blob());
  const pen = new OffscreenCanvas(image.width, image.height).getContext("2d");
  pen.drawImage(image, 0, 0);
  const bytes = pen.getImageData(0, 0, image.width, image.height).data;
  let out = "";
  for (let at = 0; at < bytes.length; at += 32768) out += String.fromCharCode(...bytes.subarray(at, at + 32768));
  return [image.width, image.height, btoa(out)];
}"""


def smaller(png: bytes, browser: Any) -> bytes:
    """The same picture with the 256 colours that matter most; every other one becomes the nearest of them."""
    page = browser.new_page()  # an empty one: a browser can read its own pictures
    width, height, text = page.evaluate(PIXELS, base64.b64encode(png).decode())
    page.close()
    pixels = np.frombuffer(base64.b64decode(text), np.uint8).reshape(-1, 4).astype(np.int32)
    packed = pixels[:, 0] << 16 | pixels[:, 1] << 8 | pixels[:, 2]
    colours, inverse, counts = np.unique(packed, return_inverse=True, return_counts=True)
    rgb = np.stack([colours >> 16, colours >> 8 & 255, colours & 255], axis=1)
    kept = _chosen(rgb, counts)
    nearest = [int(((kept - colour) ** 2).sum(axis=1).argmin()) for colour in rgb]
    rows = np.array(nearest, np.uint8)[inverse].reshape(height, width)
    lines = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1).tobytes()
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", kept.astype(np.uint8).tobytes()),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in parts
    )


def _chosen(rgb: np.ndarray, counts: np.ndarray, most: int = 256) -> np.ndarray:
    """One after another the colour that is farthest from those chosen, weighed by how often it is seen."""
    weight = np.sqrt(counts)
    chosen = [int(counts.argmax())]
    nearest = ((rgb - rgb[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < min(most, len(rgb)):
        chosen.append(int((nearest * weight).argmax()))
        nearest = np.minimum(nearest, ((rgb - rgb[chosen[-1]]) ** 2).sum(axis=1))
    return rgb[chosen]
