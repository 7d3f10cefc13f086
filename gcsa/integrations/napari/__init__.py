"""The plug-in for napari: gcsa/napari.yaml names what napari shows of it.

`widgets` needs napari; `reader`, `turning` and `embedding` do not, and are tested without a window.
"""
