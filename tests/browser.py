"""Measuring pages in a real browser: texts that touch, and texts that leave their place."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
COMMAND = next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")

# Sends every visible line of text to the frame around the page, with its rectangle.
MEASURE = """
<script>
addEventListener("load", () => {
  const shown = (element, box) => {  // what overflow leaves of a rectangle
    let [left, top, right, bottom] = [box.left, box.top, box.right, box.bottom], cut = false;
    for (let e = element; e; e = e.parentElement) {
      if (getComputedStyle(e).visibility === "hidden" || e.className === "unseen") return null;
      if (getComputedStyle(e).overflowX !== "visible" && e !== document.body) {
        const c = e.getBoundingClientRect();
        const scrolls = getComputedStyle(e).overflowX === "auto";
        cut ||= !scrolls && (left < c.left - 1 || right > c.right + 1);
        [left, top] = [Math.max(left, c.left), Math.max(top, c.top)];
        [right, bottom] = [Math.min(right, c.right), Math.min(bottom, c.bottom)];
      }
    }
    return right - left > 1 && bottom - top > 1 ? [[left, top, right, bottom], cut] : null;
  };
  const blocks = [document.body];
  const block = (element) => {  // the number of the box in whose lines a text flows
    while (getComputedStyle(element).display === "inline") element = element.parentElement;
    if (!blocks.includes(element)) blocks.push(element);
    return blocks.indexOf(element);
  };
  for (const details of document.querySelectorAll("details")) details.open = true;
  const texts = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement;
    if (!node.data.trim() || parent.closest("script, svg, .readout")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const line of range.getClientRects()) {
      const found = shown(parent, line);
      if (!found) continue;
      const [box, cut] = found;
      texts.push({text: node.data.trim().slice(0, 40), box, cut, block: block(parent)});
    }
  }
  parent.postMessage({texts, width: innerWidth,
                      page: document.documentElement.scrollWidth}, "*");
});
</script>
"""
# A frame, because windows of a browser have a least width that is more than a phone's.
FRAME = """<!DOCTYPE html>
<meta charset="utf-8">
<pre id="found"></pre>
<script>
addEventListener("message", (event) => {
  document.getElementById("found").textContent = JSON.stringify(event.data);
});
</script>
<iframe src="page.html" style="border: 0; width: %dpx; height: 900px"></iframe>
"""


def measured(page: str, width: int) -> dict[str, Any]:
    """Lay a page out in a window of `width` pixels: {texts, width, page (its width)}."""
    assert COMMAND is not None
    with tempfile.TemporaryDirectory() as folder:
        with_script = page.replace("</body>", f"{MEASURE}</body>")
        Path(folder, "page.html").write_text(with_script, "utf-8")
        Path(folder, "frame.html").write_text(FRAME % width, "utf-8")
        flags = [*FLAGS, f"--user-data-dir={folder}/profile", "--virtual-time-budget=10000"]
        done = subprocess.run(
            [COMMAND, *flags, "--dump-dom", f"file://{folder}/frame.html"],
            capture_output=True,
            text=True,
            timeout=120,
        )
    (found,) = re.findall(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr
    return json.loads(html.unescape(found))


def touching(texts: list[dict[str, Any]], gap: float = 3.0) -> list[tuple[str, str]]:
    """Return the pairs of texts that overlap, or have less than `gap` pixels between them.

    Texts of one paragraph follow each other; they do not count.
    """
    ordered = sorted(texts, key=lambda text: text["box"][1])
    pairs = []
    for n, one in enumerate(ordered):
        left, _, right, bottom = one["box"]
        for other in ordered[n + 1 :]:
            x0, y0, x1, _ = other["box"]
            if y0 >= bottom:
                break
            height = min(bottom, other["box"][3]) - y0
            same_line = height > 0.4 * min(bottom - one["box"][1], other["box"][3] - y0)
            if one["block"] == other["block"] or not same_line:
                continue
            if x0 < right + gap and left < x1 + gap:
                pairs.append((one["text"], other["text"]))
    return pairs
