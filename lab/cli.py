# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands of lab/ctl. Exit status: 0 done, 1 a failure that the message explains, 2 wrong usage, else the command's own."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

from . import base, cabling, keys, layer, life, network, nodes, s3, status, store, supervisor, vm
from .instance import CHECKOUT, Instance, LabError, instance_name, instances

PLUG_SECONDS = 0.3

Handler = Callable[[Instance, argparse.Namespace], int | None]


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    try:
        instance = Instance(instance_name(options.instance))
        if os.geteuid() != 0:
            raise LabError("root is needed (namespaces, mounts)")
        handler: Handler = options.handler
        return handler(instance, options) or 0
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _up(instance: Instance, options: argparse.Namespace) -> None:
    vm.refuse(instance)
    nodes_wanted = options.nodes or (2 if options.shape == "pair" else 3)
    wanted = cabling.plan(options.shape, nodes_wanted, options.data_mib, layer.check(options.layer))
    life.up(instance, wanted, options.checkpoint)


def _down(instance: Instance, options: argparse.Namespace) -> None:
    for each in instances(instance) if options.all else [instance]:
        life.down(each, options.nodes_only)


def _status(instance: Instance, options: argparse.Namespace) -> None:
    _need_controller(instance)
    print(status.as_json(instance) if options.json else status.as_text(instance))
    if options.look and not options.json:
        print(status.look(instance))


def environment(instance: Instance) -> dict[str, str]:
    """What a command in the controller namespace gets beside the caller's environment."""
    binaries = CHECKOUT / ".venv" / "bin"
    path = os.environ.get("PATH", os.defpath)
    return {
        **os.environ,
        "GB10_LAB": str(instance.directory),
        "LAB_INSTANCE": instance.name,
        "AWS_SHARED_CREDENTIALS_FILE": str(instance.credentials),
        "AWS_EC2_METADATA_DISABLED": "true",
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(instance.control_path),
        "PATH": path if path.split(":")[0] == str(binaries) else f"{binaries}:{path}",
    }


def _exec(instance: Instance, options: argparse.Namespace) -> int:
    words = list(options.command)
    node = None
    if words and words[0] != "--":
        node = words.pop(0)
    words = words[1:] if words[:1] == ["--"] else words
    if not words:
        raise LabError("exec [NODE] -- COMMAND...: a command is expected behind '--'")
    if node is None:
        _need_controller(instance)
        _replace([*network.enter(instance), *words], environment(instance))
        return 0
    _replace(nodes.exec_argv(_leader(instance, node), words), dict(os.environ))
    return 0


def _need_controller(instance: Instance) -> None:
    """Raises LabError when the controller side is absent; it outlives `down --nodes-only`."""
    if not network.exists(instance, network.CONTROLLER):
        store.load(instance)
        raise LabError(f"instance {instance.name!r} is broken: `lab/ctl --instance {instance.name} up` repairs it")


def _leader(instance: Instance, node: str) -> int:
    """The node's PID 1. Raises LabError when there is no such node, or it is off."""
    cabling.number_of(store.load(instance), node)
    pid = nodes.leader(instance, node)
    if pid is None:
        raise LabError(f"{node} is off: `lab/ctl --instance {instance.name} node start {node}`")
    return pid


def _replace(argv: list[str], env: dict[str, str]) -> None:
    try:
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        raise LabError(f"{argv[0]}: {error.strerror}") from error


def _ssh(instance: Instance, options: argparse.Namespace) -> None:
    cabling.number_of(store.load(instance), options.node)
    command = list(options.command)  # joined with blanks by ssh, as always
    _replace([*keys.ssh(instance, options.node), *command], dict(os.environ))


def _cable(instance: Instance, options: argparse.Namespace) -> None:
    if options.action == "list":
        print(status.cables(store.load(instance)))
        return
    with store.changing(instance):
        state = store.load(instance)
        new = _recabled(state, options)
        if options.action in ("swap", "connect"):  # the plugs lose their carrier on the way
            network.apply(instance, cabling.pulled(state, *options.ends))
            time.sleep(PLUG_SECONDS)
        store.save(instance, new)
        network.apply(instance, new)


def _recabled(state: cabling.State, options: argparse.Namespace) -> cabling.State:
    if options.action == "swap":
        return cabling.swap(state, *options.ends)
    if options.action == "connect":
        first, second = options.ends
        return cabling.connect(state, first, second, options.crossed)
    if options.action in ("deafen", "undeafen"):
        return cabling.set_deaf(state, options.port, options.action == "deafen")
    return cabling.set_cut(state, cabling.resolve(state, options.cable), options.action == "cut")


def _mtu(instance: Instance, options: argparse.Namespace) -> None:
    _leader(instance, options.node)
    network.set_mtu(instance, options.node, options.netdev, options.value)


def _node(instance: Instance, options: argparse.Namespace) -> None:
    {"reboot": life.reboot, "kill": life.kill, "start": life.start}[options.action](instance, options.node)


def _s3(instance: Instance, options: argparse.Namespace) -> None:
    _need_controller(instance)
    if not network.inside(instance):
        values = [getattr(options, name) for name in ("folder", "prefix") if hasattr(options, name)]
        s3.client_command(instance, options.action, *values)
        return
    from . import s3_client  # noqa: PLC0415 - needs boto3, which no other command does

    if options.action == "upload":
        print(s3_client.upload(instance, options.folder, options.prefix))
    elif options.action == "ls":
        print(s3_client.show(instance, options.prefix))
    else:
        s3_client.prepare(s3_client.connect(instance))


def _base(instance: Instance, options: argparse.Namespace) -> None:
    keys.ensure(instance)
    print(layer.ensure(instance, layer.check(options.layer)).root if options.layer else base.ensure(instance))


def _supervise(instance: Instance, options: argparse.Namespace) -> int:
    return supervisor.supervise(instance, options.node)


def _vm(instance: Instance, options: argparse.Namespace) -> int | None:
    if options.action == "up":
        vm.up(instance, options.timeout)
    elif options.action == "down":
        vm.down(instance)
    elif options.action == "status":
        print(json.dumps(vm.status(instance), indent=1) if options.json else vm.status_text(instance))
    elif options.action == "exec" and options.command[:1] == ["--"]:
        return _exec(instance, options)
    elif options.action == "exec":  # over SSH: a machine with a kernel of its own cannot be entered in another way
        words = options.command[1:] if options.command[1:2] != ["--"] else options.command[2:]
        if not words:
            raise LabError("vm exec [NODE] -- COMMAND...: a command is expected behind '--'")
        _replace([*vm.ssh(instance, options.command[0]), shlex.join(words)], dict(os.environ))
    else:
        _replace([*vm.ssh(instance, options.node), *options.command], dict(os.environ))
    return None


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="lab/ctl", description="The virtual ring: see docs/lab.md")
    top.add_argument("--instance", help="which lab (default: LAB_INSTANCE, else 'default')")
    commands = top.add_subparsers(dest="verb", required=True, metavar="COMMAND")

    def command(name: str, handler: Handler, text: str) -> argparse.ArgumentParser:
        made = (
            commands.add_parser(name, help=text, description=text) if text else commands.add_parser(name)
        )  # not listed
        made.set_defaults(handler=handler)
        return made

    made = command("up", _up, "start the lab; one that runs with the same shape is left as it is")
    made.add_argument("--nodes", type=int, help="2 to 8 (default 3; 2 for a pair)")
    made.add_argument("--shape", choices=cabling.SHAPES, default="ring", help="how the nodes are cabled (default ring)")
    made.add_argument("--data-mib", type=int, default=1024, help="size of each node's data file system (default 1024)")
    made.add_argument("--layer", default="", help="what the nodes have beside the base: docker (Docker and Podman)")
    made.add_argument(
        "--no-checkpoint", dest="checkpoint", action="store_false", help="upload no checkpoint to the S3 server"
    )
    made = command("down", _down, "stop the lab and remove what it left")
    made.add_argument("--nodes-only", action="store_true", help="keep the controller namespace and the S3 server")
    made.add_argument("--all", action="store_true", help="every instance of this checkout")
    made = command("status", _status, "show nodes, cables and the S3 server")
    made.add_argument("--json", action="store_true", help="for programs")
    made.add_argument("--look", action="store_true", help="and commands to look around with")
    made = command(
        "exec", _exec, "run a command in the controller namespace, or inside a node: exec [NODE] -- COMMAND..."
    )
    made.add_argument("command", nargs=argparse.REMAINDER, metavar="[NODE] -- COMMAND")
    made = command("ssh", _ssh, "open an SSH session with a node, or run a command over one")
    made.add_argument("node")
    made.add_argument("command", nargs=argparse.REMAINDER)
    _fault_commands(command)
    _vm_commands(command)
    actions = command("s3", _s3, "fill or list the bucket of the S3 server").add_subparsers(
        dest="action", required=True
    )
    made = actions.add_parser("upload", help="make a prefix equal to a folder")
    made.add_argument("folder", type=Path)
    made.add_argument("prefix", nargs="?", default=s3.PREFIX)
    made = actions.add_parser("ls", help="list the objects whose key starts with the prefix")
    made.add_argument("prefix", nargs="?", default="")
    actions.add_parser("prepare", help="wait for the server and make the bucket")
    made = command("base", _base, "build the nodes' root file system, unless it is there")
    made.add_argument("--layer", default="", help="and what nodes of this layer have on top of it (docker)")
    made = command("supervise", _supervise, "")
    made.add_argument("node")
    return top


def _fault_commands(command: Callable[[str, Handler, str], argparse.ArgumentParser]) -> None:
    cable = command("cable", _cable, "cut, heal or move cables").add_subparsers(dest="action", required=True)
    for action, text in (("cut", "take the cable out"), ("heal", "plug it in again")):
        made = cable.add_parser(action, help=text)
        made.add_argument("cable", metavar="CABLE|NODE:PORT")
    made = cable.add_parser("swap", help="exchange the plugs in two ports")
    made.add_argument("ends", nargs=2, metavar="NODE:PORT")
    made = cable.add_parser("connect", help="one cable from port to port; plugs in the way hang loose")
    made.add_argument("ends", nargs=2, metavar="NODE:PORT")
    made.add_argument("--crossed", action="store_true", help="rail 0 of one end meets rail 1 of the other")
    for action, text in (("deafen", "let nothing reach a port; what it sends arrives"), ("undeafen", "end that")):
        cable.add_parser(action, help=text).add_argument("port", metavar="NODE:PORT")
    cable.add_parser("list", help="show what is plugged in where")
    made = command("mtu", _mtu, "set the MTU of one end of a leg")
    made.add_argument("node")
    made.add_argument("netdev")
    made.add_argument("value", type=int)
    node = command("node", _node, "reboot a node, cut its power, or switch it on").add_subparsers(
        dest="action", required=True
    )
    for action, text in (
        ("reboot", "orderly"),
        ("kill", "cut the power"),
        ("start", "switch on, with the disk it had"),
    ):
        node.add_parser(action, help=text).add_argument("node")


def _vm_commands(command: Callable[[str, Handler, str], argparse.ArgumentParser]) -> None:
    text = "two nodes as virtual machines with a kernel of their own, in place of nodes in namespaces"
    actions = command("vm", _vm, text).add_subparsers(dest="action", required=True)
    made = actions.add_parser("up", help="start both, or leave them running")
    made.add_argument("--timeout", type=float, default=vm.READY_SECONDS, help="seconds until both answer (default 420)")
    actions.add_parser("down", help="stop both and remove what they left")
    made = actions.add_parser("status", help="show both")
    made.add_argument("--json", action="store_true", help="for programs")
    made = actions.add_parser("exec", help="run a command in the controller namespace, or over SSH on a machine")
    made.add_argument("command", nargs=argparse.REMAINDER, metavar="[NODE] -- COMMAND")
    made = actions.add_parser("ssh", help="open an SSH session with a machine, or run a command over one")
    made.add_argument("node")
    made.add_argument("command", nargs=argparse.REMAINDER)
