"""Writes `digits.safetensors`: images of handwritten digits, and which digit each is.

    pip install scikit-learn==1.9.1 safetensors==0.8.0
    python3 make_digits.py digits.safetensors
"""

import sys

import numpy
from safetensors.numpy import save_file
from sklearn.datasets import load_digits

digits = load_digits()
# Grey from 0 to 16.
images = digits.images.astype(numpy.uint8)
labels = digits.target.astype(numpy.uint8)
# Writers follow each other, so the last tenth has others than the rest.
save_file({"images": images, "labels": labels}, sys.argv[1])
