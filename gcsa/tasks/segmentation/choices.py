"""What users of segmenters choose by name. It imports no torch: the command says what is there without it."""

ENDINGS = {
    "labels": ("_labels.png", "_labels.tif"),
    "overlay": ("_overlay.png",),
    "csv": ("_objects.csv", "_classes.csv"),
    "geojson": (".geojson",),
}
"""The endings of file names, by kind."""
KINDS = tuple(ENDINGS)
PROPERTIES = {
    "area_convex": 2,
    "area_filled": 2,
    "axis_major_length": 1,
    "axis_minor_length": 1,
    "eccentricity": 0,
    "equivalent_diameter_area": 1,
    "euler_number": 0,
    "extent": 0,
    "feret_diameter_max": 1,
    "intensity_max": 0,
    "intensity_mean": 0,
    "intensity_min": 0,
    "intensity_std": 0,
    "orientation": 0,
    "perimeter": 1,
    "perimeter_crofton": 1,
    "solidity": 0,
}
"""Of objects, by the names of `skimage.measure.regionprops`: the power of a length that each is."""
OUTPUTS = ("classes", "probability", "instances")
"""What the maps of a segmenter of others are: a logit for each class, class 0 being the background, or one logit of the objects; one
probability of the objects; or as of StarDist's networks, the probability of an object and the distances to its border in pixels."""
TILE = 640
"""Default side of a tile in pixels, without its margin: gcsa_unet_tiny took 1.0 to 1.5 GB for 4 to 12 of these."""
AUTO = "auto"
"""Of a scale: what `SegmentationPredictor.own_scale` finds; of a stain: where the OOD score asks for it."""
ALL = "all"
"""Of slices: every one by itself."""
