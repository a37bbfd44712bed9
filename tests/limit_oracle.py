"""Slow references for the limit, in plain numpy: loops over layers, written from the equations of the spec."""

import numpy as np


def gaussian_data(embed_dim, samples, seed=2):
    """The data of the spec's figures: X, then Y, standard normal (D, N)."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((embed_dim, samples)), rng.standard_normal((embed_dim, samples))


def gaussian_units(rng, depth, units, embed_dim):
    """Input and output weights (L, M, D) of the critical scaling."""
    return tuple(np.sqrt(embed_dim) * rng.standard_normal((2, depth, units, embed_dim)))


def train_network_ref(U, V, X, Y, *, scaling, steps, record, scheme):
    """Train by "euler" (the finite ResNet) or "ab2" (the AB2-midpoint network); return {k: output (D, N)}.

    U and V are (L, M, D): units in rows, the transpose of the spec's letters.
    """
    U, V = U.astype(float), V.astype(float)
    (L, M, D), N, alpha = U.shape, X.shape[1], scaling.alpha
    forward, backward = {"euler": (_euler_forward, _euler_backward), "ab2": (_ab2_forward, _ab2_backward)}[scheme]
    outputs = {}
    for k in range(steps + 1):

        def F(layer, h):
            return alpha / M * V[layer].T @ np.tanh(U[layer] @ h / D)

        states, output = forward(F, X, L)
        if k in record:
            outputs[k] = output
        if k == steps:
            break

        def G(layer, b, states=states):
            gate = 1 / np.cosh(U[layer] @ states[layer] / D) ** 2
            return alpha / (D * M) * U[layer].T @ (gate * (V[layer] @ b))

        adjoints = backward(G, (output - Y) / (N * D), L)
        for layer, (h, b) in enumerate(zip(states, adjoints, strict=True)):
            P = U[layer] @ h / D
            Q = (V[layer] @ b) / np.cosh(P) ** 2
            U[layer] -= scaling.eta * scaling.eta_u / (alpha * D) * Q @ h.T
            V[layer] -= scaling.eta * scaling.eta_v / alpha * np.tanh(P) @ b.T
    return outputs


def _euler_forward(F, x, L):
    states = [x]
    for layer in range(L):
        states.append(states[-1] + F(layer, states[-1]) / L)
    return states[:-1], states[-1]


def _euler_backward(G, b, L):
    adjoints = [b]  # the gate of layer l meets B_{l+1}
    for layer in reversed(range(1, L)):
        adjoints.append(adjoints[-1] + G(layer, adjoints[-1]) / L)
    return adjoints[::-1]


def _ab2_forward(F, x, L):
    h = np.empty((L, *x.shape))
    slopes = np.empty_like(h)
    h[0] = x + F(0, x) / (2 * L)
    slopes[0] = F(0, h[0])
    for layer in range(1, L):
        older = slopes[layer - 2] if layer > 1 else slopes[0]
        h[layer] = h[layer - 1] + (1.5 * slopes[layer - 1] - 0.5 * older) / L
        slopes[layer] = F(layer, h[layer])
    return h, x + slopes.mean(axis=0)


def _ab2_backward(G, b, L):
    mirrored, _ = _ab2_forward(lambda layer, state: G(L - 1 - layer, state), b, L)
    return mirrored[::-1]
