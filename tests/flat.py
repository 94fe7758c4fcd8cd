"""Messages in one table, the stage's arrays and those of layers, as they travel."""

from flower_pca import client_half, registry
from flower_pca.core.layer import flatten_layers, split_layers


def all_arrays(message, client):
    """All that a client is sent."""
    return {**message.arrays_for(client), **flatten_layers(message.layers)}


def answer(stage, arrays, data, memory, **settings):
    """A client's answer to such a message."""
    own, layers = split_layers(arrays, tuple(registry.LAYERS))
    return client_half.answer(stage, own, data, memory, layers=layers, **settings)


def noise(**asked):
    """What a message says that asks for noise."""
    from flower_pca.layers.noise import noise_instruction

    return flatten_layers({"dp": noise_instruction(**asked)})
