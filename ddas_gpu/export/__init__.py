"""Policies for other libraries: as files that stand alone, and from Python (`ddas_gpu.exports`)."""
