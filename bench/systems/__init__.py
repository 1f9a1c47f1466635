"""The systems that `make bench-containerd` compares, one file each. A new one is a class like `base.System` in this list."""

from systems import erofs, overlayfs, soci, stargz, xebec

ALL = [
    overlayfs.Overlayfs,
    erofs.Erofs,
    stargz.Stargz,
    stargz.Optimised,
    soci.Soci,
    xebec.Lazy,
    xebec.Runtime,
]
