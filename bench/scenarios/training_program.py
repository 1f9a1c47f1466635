"""What the scenario `training` runs in the container: a network with one hidden layer learns the data set of its argument, a
folder with `images` (784 bits each) and `labels` (a byte each). Prints loss and accuracy for the last fifth, which it has
not seen."""

import json
import os
import sys

import numpy

HIDDEN, BATCH, EPOCHS, RATE = 64, 50, 4, 0.05


def main(folder):
    read = lambda name: numpy.fromfile(os.path.join(folder, name), numpy.uint8)
    images = numpy.unpackbits(read("images")).reshape(-1, 784).astype(numpy.float32) - 0.5
    labels = read("labels")
    seen = len(labels) * 4 // 5
    numbers = numpy.random.default_rng(7)
    first = numbers.normal(0, 0.05, (784, HIDDEN)).astype(numpy.float32)
    second = numbers.normal(0, 0.1, (HIDDEN, 10)).astype(numpy.float32)

    def forward(some):
        hidden = numpy.maximum(some @ first, 0)
        scores = hidden @ second
        chances = numpy.exp(scores - scores.max(1, keepdims=True))
        return hidden, chances / chances.sum(1, keepdims=True)

    for _ in range(EPOCHS):
        order = numbers.permutation(seen)
        for at in range(0, seen, BATCH):
            chosen = order[at : at + BATCH]
            hidden, error = forward(images[chosen])
            error[numpy.arange(len(chosen)), labels[chosen]] -= 1
            error /= len(chosen)
            back = (error @ second.T) * (hidden > 0)
            second -= RATE * hidden.T @ error
            first -= RATE * images[chosen].T @ back
    _, chances = forward(images[seen:])
    right = chances[numpy.arange(len(labels) - seen), labels[seen:]]
    accuracy = (chances.argmax(1) == labels[seen:]).mean()
    print(json.dumps({"loss": float(-numpy.log(right).mean()), "accuracy": float(accuracy)}))


main(sys.argv[1])
