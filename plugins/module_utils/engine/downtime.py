# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long the API was out of service, from a series of looks at it. Values in, values out."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Watch:
    """last: when the API answered last before it went, None when it has not answered yet. first: when it answered again.

    Times are seconds of one monotonic clock.
    """

    last: float | None = None
    down: bool = False
    first: float | None = None

    def seen(self, at: float, healthy: bool) -> Watch:
        """After one more look."""
        if self.first is not None:
            return self
        if not healthy:
            return replace(self, down=True)
        return replace(self, first=at) if self.down else replace(self, last=at)

    @property
    def over(self) -> bool:
        """Whether it went and came back."""
        return self.first is not None

    @property
    def seconds(self) -> float | None:
        """From the last healthy answer to the first one after it; None unless both were seen."""
        return None if self.first is None or self.last is None else self.first - self.last


def text(watch: Watch, waited: float) -> str:
    """For a person."""
    if watch.seconds is not None:
        return f"out of service for {watch.seconds:.1f} s"
    if watch.over:
        return "in service; it was not when the watch began"
    return f"out of service still, {waited:.0f} s after the watch began" if watch.down else "never out of service"
