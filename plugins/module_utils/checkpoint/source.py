# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a file can be fetched from: addresses in order of preference, and the text in which they travel to a node."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

Kind = Literal["s3", "peer", "disk"]
#: Name of the file in which they travel, in the temporary directory that Ansible makes for a task.
FILE = "gb10-ring-sources.json"
#: Age, in seconds, of such a file that no task will read any more.
OLD_S = 600


class SourceError(ValueError):
    """Addresses that cannot be used; its text never holds one of them."""


@dataclass(frozen=True)
class Source:
    """One address of one file. It may be signed, so it is left out of the repr.

    kind: the object store, another node's web server, or a file of this node (``file://``), which only the node itself names.
    patience_s: how long "not here" (404) and a refused connection mean
    "not yet", counted from the first such answer; after that, and with 0 at once, the next source is asked.
    """

    url: str = field(repr=False)
    kind: Kind = "s3"
    patience_s: float = 0.0

    @property
    def place(self) -> str:
        """Host and port."""
        return urlsplit(self.url).netloc


def render(sources: Mapping[str, Iterable[Source]]) -> str:
    """The text that parse() reads."""
    rows = {
        path: [{"url": source.url, "kind": source.kind, "patience_s": source.patience_s} for source in wanted]
        for path, wanted in sources.items()
    }
    return json.dumps(rows)


def parse(text: str) -> dict[str, tuple[Source, ...]]:
    """Sources by path of the file. Raises SourceError."""
    try:
        return {str(path): tuple(_source(row) for row in rows) for path, rows in json.loads(text).items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(
            f"the addresses that came from the controller cannot be read ({type(error).__name__}); run the task through "
            "its action plugin, not the bare module"
        ) from None


def _source(row: Mapping[str, Any]) -> Source:
    kind = row.get("kind", "s3")
    url = str(row["url"])
    if kind not in ("s3", "peer") or not url.startswith(("http://", "https://")):
        raise ValueError("source")
    return Source(url, kind, float(row.get("patience_s", 0.0)))


def forget_unread(directory: Path, now: float) -> None:
    """Remove files with addresses that were sent to this node and never read. directory: that of a task.

    A controller that dies in the moment between sending them and starting their reader leaves one.
    """
    for path in directory.parent.glob(f"ansible-tmp-*/{FILE}"):
        with contextlib.suppress(OSError):
            if path.parent != directory and now - path.stat().st_mtime > OLD_S:
                path.unlink()


def with_peers(
    signed: Mapping[str, str], peers: Mapping[str, Iterable[Source]] | None = None
) -> dict[str, tuple[Source, ...]]:
    """The sources of each file: other nodes first, in their order, then the object store."""
    others = peers or {}
    return {path: (*others.get(path, ()), Source(url)) for path, url in signed.items()}
