# Copyright: gb10.ring contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Options of the plugins that reach the object store from the controller."""

    DOCUMENTATION = r"""
options:
  endpoint_url:
    description:
      - Address of the object store, V(http://host:port) or V(https://host). Without it, AWS in O(region).
      - Nodes fetch from the same address, so it has to be one that they reach too, unless O(node_endpoint_url) is given.
    type: str
  node_endpoint_url:
    description: Address of the same object store as the nodes reach it. Addresses for nodes are signed for it.
    type: str
  region:
    description: Region that requests are signed for.
    type: str
    default: us-east-1
  prefix:
    description: What all keys of the checkpoint start with, as in C(owner/model). Slashes at its ends do not count.
    type: str
    default: ""
  profile:
    description:
      - Profile of the controller's AWS configuration that holds the credentials.
      - Without it and without O(access_key), boto3 looks in its usual places, the environment first.
    type: str
  anonymous:
    description: Whether requests go without a signature, as a public bucket allows. Excludes O(profile) and O(access_key).
    type: bool
    default: false
  access_key:
    description: Access key. Stays on the controller.
    type: str
  secret_key:
    description: Secret key that belongs to O(access_key). Stays on the controller.
    type: str
  addressing_style:
    description: Whether the bucket is in the path of an address or in its host name.
    type: str
    choices: [path, virtual, auto]
    default: path
  ca_bundle:
    description:
      - PEM file on the controller with the authority of the endpoint's certificate.
      - Nodes get its text beside what they trust already.
    type: path
  connect_timeout_s:
    description: Seconds to wait for the store to take a connection. Each request of the controller is tried three times.
    type: int
    default: 5
  read_timeout_s:
    description: Seconds of silence on a connection to the store, after which a request has failed and is tried again.
    type: int
    default: 30
"""
