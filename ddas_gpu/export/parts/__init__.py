"""The code of exported files.

`ddas_gpu.export.standalone` concatenates the sources of these modules: an exported file runs where
this package is not installed. The constants of `constants` are replaced by those of a policy.
"""
