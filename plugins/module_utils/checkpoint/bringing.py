# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the modules that bring files onto a node share: options of the transfer, the order of their steps, help from the controller."""

from __future__ import annotations

import contextlib
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from ..host import HostError, read_text
from .manifest import ManifestError
from .mover import Transfer
from .piece import Limits
from .rate import Bucket
from .row_plan import RowPlanError
from .runtime import Crc, install_wheel, load_crc64, machine
from .source import Source, SourceError, forget_unread
from .source import parse as parse_sources
from .stage import NeedsControllerError
from .telling import Module
from .watch import Lease, Sign, Stop, Watch, unread

_Request = TypeVar("_Request")


@dataclass(frozen=True)
class How:
    """How bytes come. lease_s: seconds without a sign of the controller after which all ends, 0 for a module that is waited for."""

    python_path: str
    workers: int
    limits: Limits
    part_size: int
    rate_limit: int = 0
    ca_pem: str = ""
    lease_s: int = 0

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> How:
        return cls(
            python_path=options["python_path"],
            workers=options["workers"],
            limits=Limits(
                connect=float(options["connect_timeout_s"]),
                read=float(options["read_timeout_s"]),
                stall=float(options["stall_timeout_s"]),
            ),
            part_size=options["part_mib"] << 20,
            rate_limit=options["rate_limit"],
            ca_pem=options["ca_pem"] or "",
            lease_s=options.get("lease_s") or 0,
        )

    def transfer(self, crc: Crc | None, stop: Stop) -> Transfer:
        return Transfer(
            context=trust(self.ca_pem),
            limits=self.limits,
            workers=self.workers,
            part_size=self.part_size,
            bucket=Bucket(self.rate_limit),
            crc=crc,
            stop=stop,
        )


class _WithHow(Protocol):
    @property
    def how(self) -> How: ...


class _Change(Protocol):
    @property
    def changed(self) -> bool: ...


_Asked = TypeVar("_Asked", bound=_WithHow)
_Seen = TypeVar("_Seen")
_Step = TypeVar("_Step", bound=_Change)


@dataclass(frozen=True)
class Look(ABC, Generic[_Asked, _Seen, _Step]):
    """What a node holds and what has to happen."""

    request: _Asked
    survey: _Seen
    staging: _Step
    crc: Crc | None

    @property
    @abstractmethod
    def needs_runtime(self) -> bool:
        """Whether checksums have to be computed that only awscrt can, and it is not here."""

    @property
    @abstractmethod
    def needs_sources(self) -> bool:
        """Whether bytes have to be fetched and nobody has said from where."""

    @abstractmethod
    def result(self) -> dict[str, Any]: ...

    @abstractmethod
    def told(self) -> dict[str, Any]:
        """What only the phase budget has in its result."""

    @abstractmethod
    def diff(self) -> list[dict[str, str]]: ...

    @abstractmethod
    def refuse(self) -> None:
        """Raises HostError when it cannot be done here."""

    def refuse_in_check_mode(self) -> None:
        """The same where nothing was done before that would have been done. Raises HostError."""
        self.refuse()

    def runtime(self) -> dict[str, Any]:
        architecture, python = machine()
        needs = {"needs_runtime": self.needs_runtime, "needs_sources": self.needs_sources}
        return {**needs, "machine": architecture, "python": python}

    def ready(self, wheel: str | None) -> bool:
        """Whether every digest can be computed; unpacks the wheel when one was sent. Raises HostError when that is no help."""
        if not self.needs_runtime:
            return True
        if not wheel:
            return False
        path = self.request.how.python_path
        install_wheel(wheel, path)
        if load_crc64(path) is None:
            raise HostError(
                f"awscrt from {Path(wheel).name} cannot be imported from {path} by Python {machine()[1]} on {machine()[0]}; put a "
                "wheel that fits into wheel_dir (checkpoint_wheel_dir) and run again"
            )
        return True


@dataclass(frozen=True)
class Brought:
    """What was found to be done and what it took. needs: set when the controller has to help before it can be finished."""

    seen: Look[Any, Any, Any]
    moved: Mapping[str, float]
    needs: NeedsControllerError | None = None

    def result(self) -> dict[str, Any]:
        found = {**self.seen.result(), "moved": dict(self.moved)}
        if self.needs:
            found |= {"expired": self.needs.expired, "replaced": self.needs.changed, "reason": str(self.needs)}
        return found


@dataclass(frozen=True)
class Work(Generic[_Request]):
    """One module's own part. read: its options. tidy: remove what a run that was killed at its very end left."""

    read: Callable[[Mapping[str, Any]], _Request]
    look: Callable[[_Request], Look[Any, Any, Any]]
    bring: Callable[[_Request], Brought]
    tidy: Callable[[_Request], None]


def run(module: Module, work: Work[_Request]) -> None:
    """The module, from its options to its result."""
    try:
        module.exit_json(**_outcome(module, work))
    except (HostError, ManifestError, RowPlanError) as error:
        module.fail_json(msg=f"{module.params['node'] or 'this node'}: {error}")


def _outcome(module: Module, work: Work[_Request]) -> dict[str, Any]:
    request = work.read(module.params)
    seen = work.look(request)
    found = {**seen.runtime(), **seen.result()}
    if module.params["phase"] == "budget":
        return {"changed": False, **seen.told(), **found}
    if module.check_mode:
        seen.refuse_in_check_mode()
        return {"changed": seen.staging.changed, "diff": seen.diff(), **found}
    seen.refuse()
    if not seen.staging.changed:
        work.tidy(request)
        return {"changed": False, "diff": seen.diff(), **found}
    if seen.needs_sources or not seen.ready(module.params["wheel"]):
        return {"changed": False, **found}
    done = work.bring(request)
    return {"changed": True, "diff": done.seen.diff(), **done.result()}


def attended(lease: Path, how: How, work: Callable[[Stop], object]) -> NeedsControllerError | None:
    """Do it for as long as the controller is there; what only the controller can help with, where there is something."""
    stop = Stop()
    try:
        with watched(lease, how.lease_s, stop):
            work(stop)
    except NeedsControllerError as needs:
        return needs
    return None


@contextlib.contextmanager
def watched(path: Path, lease_s: int, stop: Stop) -> Iterator[None]:
    """Stop what is done in this block when the controller is gone. path: of the lease, where there is one."""
    signs: list[Sign] = [unread]
    try:
        if lease_s:
            signs.append(Lease(path, lease_s))
        with Watch(stop, signs):
            yield
    finally:
        path.unlink(missing_ok=True)


def read_sources(path: str | None) -> dict[str, tuple[Source, ...]]:
    """The addresses in this file. It is deleted when it has been read: signed addresses outlive no task."""
    if not path:
        return {}
    text = read_text(Path(path))
    Path(path).unlink(missing_ok=True)
    forget_unread(Path(path).parent, time.time())
    try:
        return parse_sources(text or "")
    except SourceError as error:
        raise HostError(str(error)) from error


def trust(pem: str) -> ssl.SSLContext:
    """What the system trusts, and the given authority beside it."""
    context = ssl.create_default_context()
    if pem:
        try:
            context.load_verify_locations(cadata=pem)
        except ssl.SSLError as error:
            raise HostError(f"ca_bundle (checkpoint_ca_bundle) holds no certificate in PEM form: {error}") from error
    return context
