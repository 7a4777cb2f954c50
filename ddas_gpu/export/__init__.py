"""The policy of one epoch as a transform of another library; `ddas_gpu.exports` has the names."""
