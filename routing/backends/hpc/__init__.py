"""The campus tier: sealed jobs to workers on the GPUs, sealed tokens back through the relay.

control plane (who starts workers): `control.ControlPlane`, by Globus Compute or, in the demo, as a local process.
data plane (how a question and its answer travel): `relay.client` and `hpc_worker.crypto`.
"""
