"""The plug-in for napari: gcsa/napari.yaml names what napari shows of it.

`widgets` needs napari; `reader` and `turning` do not, and are tested without a window.
"""
